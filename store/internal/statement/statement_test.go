package statement

import (
	"maps"
	"testing"
	"testing/fstest"
)

func TestLoadFillsInPartsAndVariants(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"sql/parts.sql": {Data: []byte("-- The parts.\n\n-- {{rule}}: what is chosen.\na = 1 -- why\n  and {{more}}\n\n-- {{rows}}\nall\n\n-- {{few}}: some.\nfew\n")},
		"sql/read.sql":  {Data: []byte("-- name: list\n-- Lists.\nselect {{rows}}\n  where {{rule}}\n\n-- name: one\n\nselect 1\n")},
		"sql/clock.sql": {Data: []byte("-- The time.\nselect now()\n")},
	}
	got := Load(files, map[string]string{"more": "b = 2"}, Variant{Name: "list_few", Of: "list", Part: "rows", Is: "few"})
	want := map[string]string{
		"one":      "select 1",
		"clock":    "select now()",
		"list":     "select all\nwhere a = 1\nand b = 2",
		"list_few": "select few\nwhere a = 1\nand b = 2",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLoadPanicsIfAPartIsMissing(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]fstest.MapFS{
		"missing":   {"sql/list.sql": {Data: []byte("select {{rows}}")}},
		"twice":     {"sql/a.sql": {Data: []byte("-- name: x\nselect 1\n")}, "sql/b.sql": {Data: []byte("-- name: x\nselect 2\n")}},
		"recursive": {"sql/list.sql": {Data: []byte("select {{rows}}")}, "sql/parts.sql": {Data: []byte("-- {{rows}}\na {{rows}}\n")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("Load did not panic")
				}
			}()
			Load(files, nil)
		})
	}
}
