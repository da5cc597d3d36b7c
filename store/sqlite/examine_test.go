package sqlite

import (
	"errors"
	"io/fs"
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
