package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

func TestOpenMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none", "jobs.db")
	_, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if !errors.Is(err, holdfast.ErrNotFound) || !strings.Contains(err.Error(), path) || holdfast.HintOf(err).Kind != holdfast.HintCreateDatabase {
		t.Errorf("got %v, want an ErrNotFound that names %q", err, path)
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("the folder was created")
	}
}

// Payloads may be confidential, so no other user may read the files.
func TestOpenMakesPrivateFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "deep", "jobs.db")
	s := openAt(t, path)
	insert(t, s, 1)
	own(t, s)
	for file, want := range map[string]os.FileMode{
		filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700,
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600, path + ".lock": 0o600,
	} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", file, info.Mode().Perm(), err, want)
		}
	}
}

func TestOpenUnusable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	dangling := filepath.Join(folder, "dangling")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(filepath.Join(folder, "nothing"), dangling)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		kind error
	}{
		"no path":               {"", holdfast.ErrInvalid},
		"a folder":              {folder, holdfast.ErrInvalid},
		"below a file":          {filepath.Join(file, "jobs.db"), holdfast.ErrInvalid},
		"below a file, deep":    {filepath.Join(file, "deep", "jobs.db"), holdfast.ErrInvalid},
		"a device":              {os.DevNull, holdfast.ErrInvalid},
		"a link to nothing":     {dangling, holdfast.ErrNotFound},
		"a name of many bytes":  {filepath.Join(folder, strings.Repeat("x", 300)), holdfast.ErrInvalid},
		"a name with a NUL":     {filepath.Join(folder, "a\x00b"), holdfast.ErrInvalid},
		"a folder with a slash": {folder + "/", holdfast.ErrInvalid},
	} {
		_, err := sqlite.Open(t.Context(), sqlite.Options{Path: c.path, Create: true})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), strings.TrimSuffix(c.path, "/")) {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
	}
}

// Every character of a name reaches the file system.
func TestOpenOddNames(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"a b.db", "what?.db", "no#1.db", "100%.db", "%41.db", "ключ.db", "a&b=c.db", "file:x.db", "'quoted\".db", "back\\slash.db", "new\nline.db"} {
		path := filepath.Join(folder, name)
		s := openAt(t, path)
		insert(t, s, 1)
		if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
			t.Errorf("%q: the write-ahead log has another name: %v", name, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 33 { // each database with -wal and -shm
		t.Errorf("%d files were created: %v, %v", len(entries), entries, err)
	}
}

func TestOpenRelative(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	t.Chdir(filepath.Dir(path))
	s := openAt(t, "jobs.db")
	real, err := filepath.EvalSymlinks(path)
	if err != nil || s.Path() != real {
		t.Errorf("the path is %s, want %s, %v", s.Path(), real, err)
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Workers(context.Background(), true); err == nil {
		t.Error("a call of a closed store succeeded")
	}
	if _, err := s.Insert(context.Background(), newTasks(1), 0); err == nil {
		t.Error("an insert into a closed store succeeded")
	}
}

// If a newer build has migrated the file, this build must neither use the file nor migrate it.
func TestSchemaAhead(t *testing.T) {
	t.Parallel()
	s := open(t)
	change(t, s, "insert into migrations (version_id, is_applied) values (999, true)")
	_, upErr := s.MigrateUp(t.Context())
	_, downErr := s.MigrateDown(t.Context())
	for operation, err := range map[string]error{"check": s.CheckSchema(t.Context()), "up": upErr, "down": downErr} {
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 999") || holdfast.HintOf(err).Kind != holdfast.HintUpgrade {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

// Before the first migration there are no tables.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	s := connect(t, filepath.Join(t.TempDir(), "jobs.db"))
	err := s.CheckSchema(t.Context())
	if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 0") || holdfast.HintOf(err).Kind != holdfast.HintMigrate {
		t.Errorf("check: %v", err)
	}
	if _, err := s.QueueNames(t.Context()); !errors.Is(err, store.ErrSchema) || holdfast.HintOf(err).Kind != holdfast.HintMigrate {
		t.Errorf("list queues: %v", err)
	}
	if _, err := s.Insert(t.Context(), newTasks(1), 0); !errors.Is(err, store.ErrSchema) {
		t.Errorf("insert: %v", err)
	}
	if status, err := s.MigrationStatus(t.Context()); err != nil || len(status) == 0 || status[0].Applied {
		t.Errorf("the status is %+v, %v", status, err)
	}
}

func TestNetworkFileSystems(t *testing.T) {
	t.Parallel()
	for magic, want := range map[int64]string{
		0x6969: "NFS", 0xff534d42: "CIFS", int64(int32(-0xacb2be)): "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x65735546: "FUSE", 0x00c36400: "Ceph",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x2fc12fc1: "", 0x794c7630: "", 0: "", // ext4, XFS, Btrfs, tmpfs, ZFS, overlayfs
	} {
		if got := sqlite.NetworkKind(magic); got != want {
			t.Errorf("%x is %q, want %q", magic, got, want)
		}
	}
}

func TestOpenOnLocalDiskLogsNothing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "jobs.db"), Create: true, Log: log})
	if err == nil {
		err = s.Close()
	}
	if err != nil || out.Len() > 0 {
		t.Errorf("logged %q, %v", fmt.Sprint(out.String()), err)
	}
}

// TestCallsInSequenceShareAConnection checks that a store opens another connection only if all others are in use. Each
// connection reads the whole schema, so a start would take longer.
func TestCallsInSequenceShareAConnection(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 5 {
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.OpenReaders(); n != 1 {
		t.Errorf("%d open connections, want 1", n)
	}
}
