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

// creating keeps a file from being opened by SQLite while this process has it open as a plain file: closing
// that would take away the locks of SQLite, which belong to the process.
var creating sync.Mutex

// find returns the path and the identity of the file, which is made first if create is true.
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
		if err := orphaned(path); err != nil {
			return "", nil, err
		}
		if err := makeFile(path); err != nil {
			return "", nil, err
		}
		info, err = os.Stat(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, holdfast.WithHint(fmt.Errorf("%w: there is no database at %s yet", holdfast.ErrNotFound, path),
			holdfast.Hint{Kind: holdfast.HintCreateDatabase})
	case err != nil:
		return "", nil, refused(path, err)
	case !info.Mode().IsRegular():
		return "", nil, holdfast.WithHint(fmt.Errorf("%w: %s is not a file but a %s", holdfast.ErrInvalid, path, kindOfFile(info)), anotherFile)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, refused(path, err)
	}
	if why := otherNames(real, info); why != "" {
		err := fmt.Errorf("%w: %s can be reached under two names, for %s; then two processes do not see each other's locks and overwrite what the other has stored",
			holdfast.ErrInvalid, real, why)
		return "", nil, holdfast.WithHint(err, holdfast.Advice("leave the file one name"))
	}
	return real, info, nil
}

const hardLinked = "there are hard links to it (find them with: find -samefile)"

// orphaned refuses to make a file where another one was: its write-ahead log, which may hold tasks, would be
// thrown away with the first look into the new file.
func orphaned(path string) error {
	for _, beside := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + beside); err == nil {
			err := fmt.Errorf("%w: %s is gone, but %s is there: it was moved or deleted, perhaps while in use", holdfast.ErrConflict, path, path+beside)
			return holdfast.WithHint(err, holdfast.Advice("put the file back, or delete the files beside it to begin with no tasks"))
		}
	}
	return nil
}

// makeFile makes an empty file, which is a database to SQLite, and its folder.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return refused(path, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) { // another process was quicker, or it is a symbolic link to nothing
		return nil
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return refused(path, err)
	}
	return nil
}

// anotherFile is the hint to keep the database in another file.
var anotherFile = holdfast.Hint{Kind: holdfast.HintSetDatabase, Arg: "sqlite:/path/to/holdfast.db"}

// refused explains an error of the operating system.
func refused(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return holdfast.WithHint(fmt.Errorf("this user may not use %s: %w", path, err), holdfast.Hint{Kind: holdfast.HintDatabaseAccess})
	}
	return holdfast.WithHint(fmt.Errorf("%w: %s cannot be used: %w", holdfast.ErrInvalid, path, err), anotherFile)
}

func kindOfFile(info os.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "device or the like"
}

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
