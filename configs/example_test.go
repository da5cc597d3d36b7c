package configs

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated files")

const exampleFile = "holdfast.example.yaml"

func TestTheExampleFileIsCurrent(t *testing.T) {
	t.Parallel()
	if *update {
		if err := os.WriteFile(exampleFile, []byte(exampleText()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != exampleText() {
		t.Errorf("%s is out of date; run: go test ./configs -run ExampleFile -update", exampleFile)
	}
}

func TestTheExampleFileHoldsEveryKeyWithItsDefault(t *testing.T) {
	t.Parallel()
	c, err := Load(Options{File: exampleFile})
	if err != nil {
		t.Fatal(err)
	}
	want := Default().Entries()
	got := c.Entries()
	if len(got) != len(want) {
		t.Fatalf("%d keys, want %d", len(got), len(want))
	}
	for i, entry := range got {
		if entry.Origin != "file "+exampleFile {
			t.Errorf("%s is not in the file", entry.Key)
		}
		if entry.Key != want[i].Key || entry.Value != want[i].Value {
			t.Errorf("%s is %q, the default of %s is %q", entry.Key, entry.Value, want[i].Key, want[i].Value)
		}
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	for _, v := range Variables() {
		if len(v.Doc) < 20 || v.Doc[len(v.Doc)-1] != '.' {
			t.Errorf("%s: the documentation %q is not a sentence", v.Key, v.Doc)
		}
	}
}
