package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// If an edit fails, the text of the person stays in a file that the error names. Otherwise the file is removed.
func TestAFailedEditKeepsTheText(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "tasks.db")
	run := func(editor string, args ...string) (code int, stderr string) {
		in, out := &frame{terminal: true}, &bytes.Buffer{}
		program := &tool{terminal: terminal{stdin: in, stdout: &bytes.Buffer{}, stderr: out, env: []string{"EDITOR=" + editor}}}
		return program.run(t.Context(), append(args, "--database-url", file, "--amqp-url", "inproc:")), out.String()
	}
	if code, stderr := run("", "enqueue", "--type", "mail", "--payload", `{"order":7}`); code != 0 {
		t.Fatal(stderr)
	}
	const changed = `sed -i s/7/8/`
	for _, c := range []struct {
		name, editor string
		code         int
		kept         string // part of the text in the file; empty: no file
	}{
		{"the text is not JSON", `printf '{"order": 8' >`, 2, `{"order": 8`},
		{"the editor fails after a change", `false; sed -i s/7/8/ "$1"; exit 3; :`, 1, `"order": 8`},
		{"the person declines", changed, 1, `"order": 8`},
		{"the editor fails", "false", 1, ""},
		{"the text is the same", "true", 2, ""},
		{"the edit succeeds", changed, 0, ""},
	} {
		folder := t.TempDir()
		t.Setenv("TMPDIR", folder)
		args := []string{"task", "edit", "1"}
		if c.code == 0 {
			args = append(args, "--yes")
		}
		code, stderr := run(c.editor, args...)
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		name := regexp.MustCompile(`your text is in (\S+\.json)`).FindStringSubmatch(stderr)
		if code != c.code || (name != nil) != (c.kept != "") || len(files) > 0 != (c.kept != "") {
			t.Errorf("%s: code %d, %d files: %s", c.name, code, len(files), stderr)
			continue
		}
		if name == nil {
			continue
		}
		if text, err := os.ReadFile(name[1]); err != nil || !strings.Contains(string(text), c.kept) {
			t.Errorf("%s: the file has %q: %v", c.name, text, err)
		}
	}
}
