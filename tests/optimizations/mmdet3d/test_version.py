"""mmdet3d accepts the last releases of mmcv 1.x, and refuses what it is right to refuse."""

import pytest

MMDET3D = """
    import mmcv
    def digits(version):
        return [int(part) for part in version.split(".")]
    assert [1, 5, 2] <= digits(mmcv.__version__) <= [1, 7, 0], f"MMCV=={mmcv.__version__}"
"""


def files(version):
    return {"mmcv/__init__.py": f"__version__ = {version!r}\n", "mmdet3d/__init__.py": MMDET3D}


@pytest.mark.parametrize("version", ["1.7.1", "1.7.2"])
def test_it_is_told_of_a_release_that_it_accepts(use, project, version):
    project.write(files(version))
    use("mmdet3d", "mmdet3d.mmcv_version").run(f"""
        report = apply()
        import mmdet3d, mmcv
        assert mmcv.__version__ == {version!r}, "everyone else sees what is installed"
        assert state(report, "mmdet3d.mmcv_version") == "applied", str(report)
    """)


@pytest.mark.parametrize("version", ["1.5.2", "1.7.0"])
def test_nothing_is_changed_where_it_is_right(use, project, version):
    project.write(files(version))
    use("mmdet3d", "mmdet3d.mmcv_version").run("""
        report = apply()
        import mmdet3d
        assert "not needed" in report.execution["mmdet3d.mmcv_version"].members[0].note
    """)


@pytest.mark.parametrize("version", ["1.4.0", "2.1.0"])
def test_other_versions_are_refused_in_its_own_words(use, project, version):
    project.write(files(version))
    use("mmdet3d", "mmdet3d.mmcv_version")
    done = project.script("apply(); import mmdet3d", code=1)
    assert f"AssertionError: MMCV=={version}" in done.stderr
