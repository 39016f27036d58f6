//! File systems on which a lock of this machine says nothing about other machines.

use std::io;
use std::path::Path;

/// Kinds by the number that `statfs` tells. Those that may be on one machine only (FUSE, 9P) count
/// as well: nobody can tell from here.
const NETWORK: [(u64, &str); 18] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x564c, "NCP"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "a shared folder of VirtualBox"),
];

/// What kind of network file system the path is on, or would be once it is made.
pub(super) fn network_kind(path: &Path) -> io::Result<Option<&'static str>> {
    for folder in path.ancestors() {
        match rustix::fs::statfs(folder) {
            Ok(found) => return Ok(kind_of(found.f_type as u64)),
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn kind_of(number: u64) -> Option<&'static str> {
    // Some machines extend the sign of 32 bits.
    let number = number & 0xffff_ffff;
    NETWORK.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_told_from_those_of_this_one() {
        assert_eq!(kind_of(0x6969), Some("NFS"));
        assert_eq!(kind_of(0xffff_ffff_ff53_4d42), Some("CIFS"));
        for here in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(kind_of(here), None, "{here:x}");
        }
        let kind = network_kind(Path::new("/dev/shm/nobody/made/this")).unwrap();
        assert_eq!(kind, None, "the nearest folder that is there counts");
    }
}
