// Package patch builds programs from sources that differ from those on disk in a few places, and leaves the
// sources alone. The simulator needs it twice: for a Go runtime that decides nothing by chance, so that
// a seed replays exactly, and for mutants of this module, which its invariants must catch.
package patch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Edit replaces one piece of one source file.
type Edit struct {
	File     string // relative to the module's root, or to the sources of Go if it begins with goroot
	Old, New string // Old must occur exactly once
}

const goroot = "GOROOT/"

// Build compiles the tests of a package with the edits into a binary. Work is a folder for the edited files. The
// error names the edit that does not fit its file any more, or is what the compiler said.
func Build(root, work, pkg, binary string, edits []Edit) error {
	overlay, err := write(root, work, edits)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// write makes the edited files and the list of them that the go command wants.
func write(root, work string, edits []Edit) (overlay string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask for GOROOT: %w", err)
	}
	work, err = filepath.Abs(work)
	if err != nil {
		return "", err
	}
	edited := make(map[string]string) // by path
	for _, e := range edits {
		path := filepath.Join(root, e.File)
		if inGo, ok := strings.CutPrefix(e.File, goroot); ok {
			path = filepath.Join(strings.TrimSpace(string(out)), "src", inGo)
		}
		text, ok := edited[path]
		if !ok {
			read, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(read)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf("%s has changed: it should contain the following once, not %d times; adapt the edit:\n%s", path, n, e.Old)
		}
		edited[path] = strings.Replace(text, e.Old, e.New, 1)
	}
	replace := make(map[string]string)
	for path, text := range edited {
		replace[path] = filepath.Join(work, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "_"))
		if err := os.WriteFile(replace[path], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(work, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o644)
}
