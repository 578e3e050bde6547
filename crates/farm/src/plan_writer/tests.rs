use std::os::unix::fs::PermissionsExt;

use url::Url;

use super::*;
use crate::plan::{INDEX, Plan, UNITS};

fn file(number: u64) -> PlannedFile {
    PlannedFile {
        urls: vec![format!("http://h/{number}")],
        path: format!("d/{number}").into(),
        size: Some(Bytes::new(number)),
        modified: None,
        checksum: None,
    }
}

/// Writes a plan of the files 1 to `count`.
fn write(path: &Path, count: u64, size: UnitSize) -> Result<PlanHeader, FarmError> {
    let mut writer = PlanWriter::create(path, &path.with_file_name("t"), size, Duration::from_secs(30))?;
    (1..=count).try_for_each(|number| writer.add(file(number)))?;
    writer.finish()
}

#[test]
fn units_end_by_bytes_or_files_and_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let header = write(&path, 9, UnitSize { bytes: Bytes::new(10), files: 3 }).unwrap();
    let counts = PlanCounts { units: 4, files: 9, bytes: Bytes::new(45), ..PlanCounts::default() };
    assert_eq!(header.counts, counts);
    assert_eq!(header.source, "http://h/1");
    let plan = Plan::open(&path).unwrap();
    assert_eq!(plan.header(), &header);
    let units: Vec<usize> = plan.ids().map(|id| plan.unit(id).unwrap().files.len()).collect();
    assert_eq!(units, [3, 3, 2, 1]);
    assert_eq!(plan.unit(UnitId(3)).unwrap().files, [file(9)]);
    assert!(matches!(write(&path, 1, UnitSize::default()), Err(FarmError::Exists(_))));
    let again = dir.path().join("q");
    assert!(matches!(write(&again, 0, UnitSize::default()), Err(FarmError::Empty)));
    let mut writer =
        PlanWriter::create(&again, Path::new("/t"), UnitSize::default(), Duration::ZERO).unwrap();
    writer.add(file(1)).unwrap();
    assert!(matches!(writer.add(file(1)), Err(FarmError::Twice(_))));
    drop(writer);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "what is not complete is removed");
}

#[test]
fn plan_is_of_the_version_that_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let unlimited = FarmLimits::default;
    let limited = FarmLimits { connections: 3, ..unlimited() };
    let local = PlannedFile::of_local(Path::new("/d"), Path::new("f"), "f".into(), Bytes::mib(3), Some(7));
    let directory = PlanTarget::from(&dir.path().join("t"));
    let server = || PlanTarget::from(Url::parse("https://h/up").unwrap());
    for (name, target, file, limits, version, units, source) in [
        ("files", directory.clone(), file(1), unlimited(), 1, 1, "http://h/1"),
        ("limits", directory.clone(), file(1), limited.clone(), 2, 1, "http://h/1"),
        // Neither a copy nor an upload is cut into ranges.
        ("copies", directory, local.clone(), limited, 3, 1, ""),
        ("uploads", server(), local, unlimited(), 3, 1, "https://h/up/"),
    ] {
        let (path, size) = (dir.path().join(name), UnitSize { bytes: Bytes::mib(1), files: 3 });
        let mut writer = PlanWriter::create(&path, target.clone(), size, Duration::from_secs(30)).unwrap();
        writer.add_in_ranges(file).unwrap();
        writer.set_limits(limits.clone());
        writer.finish().unwrap();
        let plan = Plan::open(&path).unwrap();
        let header = plan.header();
        assert_eq!(
            (header.format.version, header.counts.units, &*header.source),
            (version, units, source),
            "{name}"
        );
        assert_eq!((&header.target, FarmLimits::of(&plan).unwrap()), (&target, limits), "{name}");
    }
}

#[test]
fn huge_file_is_cut_only_where_symbolic_links_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    let size = UnitSize { bytes: Bytes::mib(1), files: 3 };
    let huge = PlannedFile { size: Some(Bytes::mib(3)), modified: Some(7), ..file(2) };
    for (target, has_links) in [("new/t", true), ("f/t", false)] {
        let (path, target) = (dir.path().join("p"), dir.path().join(target));
        let writer = PlanWriter::create(&path, &target, size, Duration::from_secs(30)).unwrap();
        assert_eq!(writer.is_cut(&huge), has_links, "{target:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the link is removed");
}

#[test]
fn huge_file_is_cut_into_ranges_and_a_unit_that_joins_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let size = UnitSize { bytes: Bytes::mib(1), files: 3 };
    let huge = PlannedFile { size: Some(Bytes::new((5 << 19) + 1)), modified: Some(7), ..file(2) };
    let there = PlannedFile { path: "there".into(), ..huge.clone() };
    let on_disk = File::create(target.join("there")).unwrap();
    on_disk.set_len((5 << 19) + 1).unwrap();
    on_disk.set_modified(there.modified().unwrap()).unwrap();
    let mut writer = PlanWriter::create(&path, &target, size, Duration::from_secs(30)).unwrap();
    for file in [
        file(1),
        huge.clone(),
        // No state of the source is known; several mirrors; not more than two units; complete
        // already; an absurd size.
        PlannedFile { path: "a".into(), modified: None, ..huge.clone() },
        PlannedFile {
            path: "b".into(),
            urls: vec!["http://h/1".into(), "http://g/1".into()],
            ..huge.clone()
        },
        PlannedFile { path: "c".into(), size: Some(Bytes::mib(2)), ..huge.clone() },
        there,
        PlannedFile { path: "e".into(), size: Some(Bytes::new(u64::MAX)), ..huge.clone() },
    ] {
        writer.add_in_ranges(file).unwrap();
    }
    let header = writer.finish().unwrap();
    assert_eq!((header.format.version, header.counts.units, header.counts.files), (2, 10, 7));
    let plan = Plan::open(&path).unwrap();
    let parts: Vec<_> = plan.ids().map(|id| plan.unit(id).unwrap().part).collect();
    let range = |start, end| Some(FilePart::Range { start, end, joined_by: UnitId(4) });
    let expected = [
        None,
        range(0, 1 << 20),
        range(1 << 20, 2 << 20),
        range(2 << 20, (5 << 19) + 1),
        Some(FilePart::Join { ranges: 3 }),
    ];
    assert_eq!((&parts[..5], &parts[5..]), (&expected[..], &[None; 5][..]));
    assert_eq!(plan.joins(), [(UnitId(4), 3)].into());
    let completed: Vec<_> = plan.ids().map(|id| plan.unit(id).unwrap().completes().len()).collect();
    assert_eq!(completed, [1, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    // The last range ends where the file does, however large.
    let path = dir.path().join("q");
    let size = UnitSize { bytes: Bytes::new(1 << 62), files: 3 };
    let mut writer = PlanWriter::create(&path, &target, size, Duration::from_secs(30)).unwrap();
    writer.add_in_ranges(PlannedFile { size: Some(Bytes::new(u64::MAX)), ..huge }).unwrap();
    writer.finish().unwrap();
    let last = Plan::open(&path).unwrap().unit(UnitId(3)).unwrap().part;
    assert_eq!(last, Some(FilePart::Range { start: 3 << 62, end: u64::MAX, joined_by: UnitId(4) }));
}

#[test]
fn header_is_an_object_whose_last_field_is_the_digest_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let header = write(&path, 1, UnitSize::default()).unwrap();
    let (made_by, id, index) = (env!("CARGO_PKG_VERSION"), &header.id, &header.index);
    let (target, length) = (&header.target, fs::metadata(path.join(UNITS)).unwrap().len());
    let with = |checksum: &str| {
        format!(
            r#"{{"format":"longhaul-plan","version":1,"made_by":"{made_by}","id":"{id}","target":"{target}","source":"http://h/1","#
        ) + &format!(
            r#""lease":30.0,"units":1,"files":1,"bytes":1,"files_of_unknown_size":0,"left_out":0,"units_length":{length},"#
        ) + &format!(r#""index":"{index}","checksum":"{checksum}"}}"#)
    };
    let text = fs::read_to_string(path.join(HEADER)).unwrap();
    let compact: String = text.lines().map(|line| line.trim_start().replacen("\": ", "\":", 1)).collect();
    assert_eq!(compact, with(blake3::hash(with("").as_bytes()).to_hex().as_str()));
}

#[test]
fn edited_truncated_and_newer_plans_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    write(&path, 5, UnitSize { bytes: Bytes::new(1), files: 3 }).unwrap();
    let read = |name: &str| fs::read(path.join(name)).unwrap();
    let replaced = |name: &str, from: &str, to: &str| {
        String::from_utf8(read(name)).unwrap().replacen(from, to, 1).into_bytes()
    };
    let half = |name: &str| read(name)[..read(name).len() / 2].to_vec();
    let mut index = read(INDEX);
    index[0] ^= 1;
    for (name, content, words) in [
        (HEADER, replaced(HEADER, "/t\"", "/u\""), "plan.json was edited"),
        (HEADER, half(HEADER), "truncated"),
        (HEADER, replaced(HEADER, "\"version\": 1", "\"version\": 4"), "version 4"),
        (HEADER, b"{\"format\":\"x\",\"version\":1}".to_vec(), "is no plan"),
        (INDEX, half(INDEX), "bytes instead of"),
        (INDEX, index, "units.index was edited"),
        (UNITS, half(UNITS), "bytes instead of"),
        (UNITS, replaced(UNITS, "http://h/1", "http://g/1"), "unit 0 in units.jsonl was edited"),
    ] {
        let right = read(name);
        fs::write(path.join(name), content).unwrap();
        let opened = Plan::open(&path).and_then(|plan| plan.unit(UnitId(0)));
        let error = opened.unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
        fs::write(path.join(name), right).unwrap();
    }
    assert!(Plan::open(&path).unwrap().unit(UnitId(4)).is_ok());
    assert!(matches!(Plan::open(dir.path()), Err(FarmError::NoPlan(_))));
}

#[test]
fn pipe_in_the_place_of_the_units_does_not_block() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    write(&path, 1, UnitSize::default()).unwrap();
    fs::remove_file(path.join(UNITS)).unwrap();
    mknodat(CWD, path.join(UNITS), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(matches!(Plan::open(&path), Err(FarmError::Damaged { .. })));
}

#[test]
fn paths_and_ids_that_leave_the_target_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (number, path) in ["/etc/passwd", "../f", "d/../../f", ""].iter().enumerate() {
        let plan = dir.path().join(number.to_string());
        let target = dir.path().join("t");
        let mut writer = PlanWriter::create(&plan, &target, UnitSize::default(), Duration::ZERO).unwrap();
        writer.add(PlannedFile { path: path.into(), ..file(1) }).unwrap();
        writer.finish().unwrap();
        let error = Plan::open(&plan).unwrap().unit(UnitId(0)).unwrap_err();
        assert!(matches!(error, FarmError::Damaged { .. }), "{path}: {error}");
    }
    let path = dir.path().join("p");
    let mut header = write(&path, 1, UnitSize::default()).unwrap();
    header.id = "../../../../../x".to_owned();
    header.checksum = header.digest();
    fs::write(path.join(HEADER), serde_json::to_vec(&header).unwrap()).unwrap();
    assert!(matches!(Plan::open(&path), Err(FarmError::Damaged { .. })));
}

#[test]
fn plan_with_queries_is_for_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let mut writer =
        PlanWriter::create(&path, &dir.path().join("t"), UnitSize::default(), Duration::ZERO).unwrap();
    assert!(!writer.holds_queries());
    writer.add(PlannedFile { urls: vec!["http://h/f?sig=1".into()], ..file(1) }).unwrap();
    assert!(writer.holds_queries());
    writer.finish().unwrap();
    for name in [HEADER, UNITS] {
        let mode = fs::metadata(path.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn last_of_many_units_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let header = write(&path, 20_000, UnitSize { bytes: Bytes::new(1), files: 1 }).unwrap();
    assert_eq!(header.counts.units, 20_000);
    let plan = Plan::open(&path).unwrap();
    assert_eq!(plan.unit(UnitId(19_999)).unwrap().files, [file(20_000)]);
}
