package sqlite

// networks names the file systems on which SQLite's locks and its shared memory do not work between machines, and
// often not on one, by the magic numbers of statfs(2).
var networks = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x01021997: "9p",
	0x65735546: "FUSE",
	0x00c36400: "Ceph",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x0000564c: "NCP",
	0x0bd00bd0: "Lustre",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x47504653: "GPFS",
	0x786f4256: "a shared folder of VirtualBox",
}

// networkKind names a file system by its magic number if it is one of the networks, else it is "".
func networkKind(magic int64) string { return networks[uint32(magic)] }
