package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

func TestFolderAndDiskAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got      doctor.Check
		severity doctor.Severity
		text     string
	}{
		"a disk":         {folderCheck("/d", "", nil), doctor.OK, "/d"},
		"a network":      {folderCheck("/d", "NFS", nil), doctor.Failed, "NFS"},
		"not writable":   {folderCheck("/d", "", fs.ErrPermission), doctor.Failed, "/d"},
		"full":           {folderCheck("/d", "", errors.New("no space left")), doctor.Failed, "no space left"},
		"enough":         {diskCheck("/d", 2<<30, true), doctor.OK, "2147 MB free"},
		"getting scarce": {diskCheck("/d", 500<<20, true), doctor.Warning, "/d"},
		"too little":     {diskCheck("/d", 1<<20, true), doctor.Failed, "/d"},
		"not known":      {diskCheck("/d", 0, false), doctor.Skipped, "df /d"},
	} {
		if c.got.Severity != c.severity || !strings.Contains(c.got.Detail+c.got.Remedy.Arg, c.text) || (c.severity == doctor.OK) != (c.got.Remedy == holdfast.Hint{}) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

// A long write-ahead log is a warning. On Linux it names who has the file open, but not this process.
func TestALongLogIsAWarning(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	for _, name := range []string{path, path + "-wal"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c := logCheck(path); c.Severity != doctor.OK {
		t.Errorf("an empty log: %+v", c)
	}
	if err := os.Truncate(path+"-wal", longLog+1); err != nil { // a hole, which takes no space
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := exec.Command("sleep", "1000")
	reader.Stdin = file
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Process.Kill(); _ = reader.Wait() }()
	c := logCheck(path)
	if c.Severity != doctor.Warning || !strings.HasPrefix(c.Detail, "268 MB in the write-ahead log") || !strings.Contains(c.Remedy.Arg, path) {
		t.Errorf("a long log: %+v", c)
	}
	if want := fmt.Sprintf("have the file open: sleep (%d)", reader.Process.Pid); runtime.GOOS == "linux" && !strings.HasSuffix(c.Detail, want) {
		t.Errorf("%q, want %q at the end", c.Detail, want)
	}
}
