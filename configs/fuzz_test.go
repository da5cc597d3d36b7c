package configs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/holdfastq/holdfast"
)

// FuzzLoad feeds arbitrary files. Whatever they hold, Load returns an ErrInvalid or a
// configuration that is valid and survives being written down and read again.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("types: {a.b: {retry: {delays: [1s, 2m]}}}\nwebhook: {secrets: {x: [" + secretA + "]}}"))
	f.Add([]byte("a: &a [x]\nb: [*a, *a]"))
	f.Add([]byte("worker: {lease: 1e3}\n---\n"))
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			t.Skip("the size is bounded elsewhere")
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{File: path})
		if err != nil {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Fatalf("not an ErrInvalid: %v", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("loaded but not valid: %v", err)
		}
		if err := c.Settings().Validate(); err != nil {
			t.Fatalf("valid here but not in the domain: %v", err)
		}
		again := make(map[string]string)
		for _, s := range c.settings() {
			again[s.key] = s.value.text()
		}
		second, err := Load(Options{Flags: again})
		if err != nil {
			t.Fatalf("its own text is not valid: %v", err)
		}
		c.origins, second.origins = nil, nil
		if first, again := c.Entries(), second.Entries(); !reflect.DeepEqual(first, again) {
			t.Fatalf("got %v\nwant %v", again, first)
		}
	})
}
