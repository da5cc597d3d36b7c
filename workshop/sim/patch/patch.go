// Package patch builds test binaries from edited copies of source files, and leaves the files on disk unchanged. The
// simulator uses it for a Go runtime that makes no random choices, so that a seed replays exactly. It also uses it for
// mutants of this module, which the invariants of the simulator must catch.
package patch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Edit replaces one piece of text in one source file.
type Edit struct {
	File     string // relative to the root of the module, or to the Go sources if it begins with GOROOT/
	Old, New string // File must contain Old exactly once; if Old is empty, File is a new file with the text New
}

const goroot = "GOROOT/"

// Build compiles the tests of a package with the edits into a binary. It writes the edited files to the directory work.
// It returns an error that names the edit if an edit does not match its file. If the compiler fails, the error contains
// its output.
func Build(root, work, pkg, binary string, edits []Edit) error {
	return build(root, work, pkg, edits, "test", "-c", "-o", binary)
}

// Program compiles the program in a package with the edits, as Build does for tests.
func Program(root, work, pkg, binary string, edits []Edit) error {
	return build(root, work, pkg, edits, "build", "-o", binary)
}

func build(root, work, pkg string, edits []Edit, command ...string) error {
	overlay, err := write(root, work, edits)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append(command, "-overlay", overlay, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// write writes the edited files and the overlay file for the go command, and returns the path of the overlay file.
func write(root, work string, edits []Edit) (overlay string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
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
		if e.Old == "" {
			edited[path] = e.New
			continue
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
			return "", fmt.Errorf("edit does not match %s: the file must contain the following text once, but contains it %d times:\n%s", path, n, e.Old)
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
