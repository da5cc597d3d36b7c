package sqlite

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

func TestFolderAndDiskAreJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got   holdfast.Finding
		grade holdfast.Grade
		text  string
	}{
		"a disk":         {folderFinding("/d", "", nil), holdfast.GradeOK, "/d"},
		"a network":      {folderFinding("/d", "NFS", nil), holdfast.GradeFailed, "NFS"},
		"not writable":   {folderFinding("/d", "", fs.ErrPermission), holdfast.GradeFailed, "/d"},
		"full":           {folderFinding("/d", "", errors.New("no space left")), holdfast.GradeFailed, "no space left"},
		"enough":         {diskFinding("/d", 2<<30, true), holdfast.GradeOK, "2147 MB free"},
		"getting scarce": {diskFinding("/d", 500<<20, true), holdfast.GradeWarning, "/d"},
		"too little":     {diskFinding("/d", 1<<20, true), holdfast.GradeFailed, "/d"},
		"not known":      {diskFinding("/d", 0, false), holdfast.GradeSkipped, "df /d"},
	} {
		if c.got.Grade != c.grade || !strings.Contains(c.got.Detail+c.got.Remedy, c.text) || (c.grade == holdfast.GradeOK) != (c.got.Remedy == "") {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}
