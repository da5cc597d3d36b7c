package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfastq/holdfast"
)

// creating is locked while this process has the file open as a plain file. During that time, SQLite must not open the
// file: when a process closes a plain file, it releases all its locks on the file, including those of SQLite.
var creating sync.Mutex

// find returns the absolute path and the identity of the file. If create is true, find creates a missing file.
func find(path string, create bool) (string, os.FileInfo, error) {
	if path == "" {
		return "", nil, fmt.Errorf("%w: the path of the database is empty", holdfast.ErrInvalid)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", holdfast.ErrInvalid, err)
	}
	creating.Lock()
	defer creating.Unlock()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err := checkOrphans(path); err != nil {
			return "", nil, err
		}
		if err := createFile(path); err != nil {
			return "", nil, err
		}
		info, err = os.Stat(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, holdfast.WithHint(fmt.Errorf("%w: there is no database at %s yet", holdfast.ErrNotFound, path),
			holdfast.Hint{Kind: holdfast.HintCreateDatabase})
	case err != nil:
		return "", nil, fileError(path, err)
	case !info.Mode().IsRegular():
		return "", nil, holdfast.WithHint(fmt.Errorf("%w: %s is a %s, not a file", holdfast.ErrInvalid, path, kindOfFile(info)), anotherFile)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, fileError(path, err)
	}
	if why := otherNames(real, info); why != "" {
		err := fmt.Errorf("%w: %s can be opened under two names, because %s; two processes could miss each other's locks and overwrite each other's data",
			holdfast.ErrInvalid, real, why)
		return "", nil, holdfast.WithHint(err, holdfast.Advice("remove the other names of the file"))
	}
	return real, info, nil
}

const hardLinked = "there are hard links to it (find them with: find -samefile)"

// checkOrphans returns an ErrConflict if files of an earlier database remain at the path. The write-ahead log of that
// database may contain tasks, and SQLite would delete the log when it opens a new file.
func checkOrphans(path string) error {
	for _, beside := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + beside); err == nil {
			err := fmt.Errorf("%w: %s does not exist, but %s does: the database was moved or deleted, perhaps while in use", holdfast.ErrConflict, path, path+beside)
			return holdfast.WithHint(err, holdfast.Advice("restore the file, or delete the files beside it to start without tasks"))
		}
	}
	return nil
}

// createFile creates the folder and an empty file, which is a valid database for SQLite.
func createFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fileError(path, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) { // another process has created it since, or the path is a dangling symbolic link
		return nil
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fileError(path, err)
	}
	return nil
}

// anotherFile is the hint to use another file.
var anotherFile = holdfast.Hint{Kind: holdfast.HintSetDatabase, Arg: "sqlite:/path/to/holdfast.db"}

// fileError returns an error for an error of the operating system, with the path and a hint.
func fileError(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return holdfast.WithHint(fmt.Errorf("this user may not use %s: %w", path, err), holdfast.Hint{Kind: holdfast.HintDatabaseAccess})
	}
	return holdfast.WithHint(fmt.Errorf("%w: %s cannot be used: %w", holdfast.ErrInvalid, path, err), anotherFile)
}

func kindOfFile(info os.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "device or another special file"
}

// networks has the names of network file systems by their magic numbers in statfs(2). On them, SQLite's locks and
// shared memory do not work between machines, and often not even on one machine.
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

// networkKind returns the name of the network file system with the magic number, or "" if it is another file system.
func networkKind(magic int64) string { return networks[uint32(magic)] }
