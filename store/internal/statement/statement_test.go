package statement

import (
	"maps"
	"testing"
	"testing/fstest"
)

func TestLoadFillsInPartsAndVariants(t *testing.T) {
	t.Parallel()
	adapter := fstest.MapFS{
		"sql/parts.sql": {Data: []byte("-- The parts.\n\n-- {{rule}}: what is chosen.\na = 1 -- why\n  and {{more}}\n\n-- {{all}}\nall\n")},
		"sql/clock.sql": {Data: []byte("-- The time.\nselect now()\n")},
	}
	shared := fstest.MapFS{
		"parts.sql": {Data: []byte("-- {{few}}: some.\nfew\n")},
		"read.sql":  {Data: []byte("-- name: list\n-- Lists.\nselect {{all}}\n  where {{rule}}\n\n-- name: one\n\nselect 1\n")},
		"read.go":   {Data: []byte("package read")},
	}
	got := Load(PostgreSQL, map[string]string{"more": "b = 2"}, []Variant{
		{Name: "list_few", Of: "list", Part: "all", Is: "few"},
		{Name: "list_more", Of: "list", Part: "all", Is: "few", More: map[string]string{"rule": "more"}},
	}, adapter, shared)
	want := map[string]string{
		"one":       "select 1",
		"clock":     "select now()",
		"list":      "select all\nwhere a = 1\nand b = 2",
		"list_few":  "select few\nwhere a = 1\nand b = 2",
		"list_more": "select few\nwhere b = 2",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ postgres, sqlite string }{
		"select 1":                  {"select 1", "select 1"},
		"{{now}}":                   {"now()", "?1"},
		"{{now}} + $2 + $10":        {"now() + $2 + $10", "?11 + ?2 + ?10"},
		"{{clock}}":                 {"clock_timestamp()", "?1"},
		"nullif(a, {{epoch}})":      {"nullif(a, timestamptz 'epoch')", "nullif(a, 0)"},
		"{{at($4)}}":                {"timestamptz 'epoch' + $4 * interval '1 microsecond'", "?4"},
		"{{at($4::bigint)}}":        {"timestamptz 'epoch' + $4::bigint * interval '1 microsecond'", "?4"},
		"{{at(a + 1)}}":             {"timestamptz 'epoch' + (a + 1) * interval '1 microsecond'", "(a + 1)"},
		"{{span((select $1))}}":     {"(select $1) * interval '1 microsecond'", "(select ?1)"},
		"{{span((a) + (b))}}":       {"((a) + (b)) * interval '1 microsecond'", "((a) + (b))"},
		"{{now}} - {{span($1)}}":    {"now() - $1 * interval '1 microsecond'", "?2 - ?1"},
		"{{micros({{clock}})}}":     {"(extract(epoch from clock_timestamp()) * 1000000)::bigint", "?1"},
		"{{age(d.died_at)}} / 60":   {"extract(epoch from now() - d.died_at) / 60", "((?1 - d.died_at) / 1000000.0) / 60"},
		"{{queue(d.queue)}} = $1":   {"split_part(d.queue, '.', 1) = $1", "substr(d.queue || '.', 1, instr(d.queue || '.', '.') - 1) = ?1"},
		"id {{in($2::bigint[])}}":   {"id = any ($2::bigint[])", "id in (select value from json_each(?2))"},
		"{{none($2::text[])}}":      {"cardinality($2::text[]) = 0", "?2 = '[]'"},
		"{{list(g.id, $1::int[])}}": {"unnest($1::int[]) as g (id)", "(select value as id from json_each(?1)) as g"},
		"{{rows(e, $1::json, id bigint,\n  tag text)}}": {"json_to_recordset($1::json) as e (id bigint, tag text)",
			"(select value ->> 'id' as id, value ->> 'tag' as tag from json_each(?1)) as e"},
		"a {{lock}}":                   {"a for update", "a"},
		"a {{lock(of t skip locked)}}": {"a for update of t skip locked", "a"},
		"select 'a' from holdfast.b":   {"select 'a' from holdfast.b", "select 'a' from b"},
		"cast($1::text as bigint)":     {"cast($1::text as bigint)", "cast(?1 as bigint)"},
		"{{since}} and $2 > 0":         {"at > timestamptz 'epoch' + $1 * interval '1 microsecond' and $2 > 0", "at > ?1 and ?2 > 0"},
		"{{at(least({{micros({{now}})}}, (a, b)))}}": {"timestamptz 'epoch' + (least((extract(epoch from now()) * 1000000)::bigint, (a, b))) * interval '1 microsecond'",
			"(least(?1, (a, b)))"},
	} {
		files := fstest.MapFS{"x.sql": {Data: []byte(text)}}
		given := map[string]string{"since": "at > {{at($1)}}"}
		if got := Load(PostgreSQL, given, nil, files)["x"]; got != want.postgres {
			t.Errorf("%q is %q for PostgreSQL, want %q", text, got, want.postgres)
		}
		if got := Load(SQLite, given, nil, files)["x"]; got != want.sqlite {
			t.Errorf("%q is %q for SQLite, want %q", text, got, want.sqlite)
		}
	}
}

func TestLoadPanicsIfAFileIsNotUsable(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]fstest.MapFS{
		"missing part":      {"sql/list.sql": {Data: []byte("select {{all}}")}},
		"unknown macro":     {"sql/list.sql": {Data: []byte("select {{all(1)}}")}},
		"part as a macro":   {"sql/list.sql": {Data: []byte("select {{few(1)}}")}, "sql/parts.sql": {Data: []byte("-- {{few}}\nfew\n")}},
		"macro as a part":   {"sql/parts.sql": {Data: []byte("-- {{now}}\nfew\n")}},
		"no arguments":      {"sql/list.sql": {Data: []byte("select {{at}}")}},
		"many arguments":    {"sql/list.sql": {Data: []byte("select {{at(1, 2)}}")}},
		"list of no column": {"sql/list.sql": {Data: []byte("select {{list(a, $1)}}")}},
		"open parenthesis":  {"sql/list.sql": {Data: []byte("select {{at((1)}}")}},
		"two parentheses":   {"sql/list.sql": {Data: []byte("select {{at(1))}}")}},
		"open braces":       {"sql/list.sql": {Data: []byte("select {{at(1)")}},
		"closing braces":    {"sql/list.sql": {Data: []byte("select 1}}")}},
		"twice":             {"sql/a.sql": {Data: []byte("-- name: x\nselect 1\n")}, "sql/b.sql": {Data: []byte("-- name: x\nselect 2\n")}},
		"twice in a file":   {"sql/a.sql": {Data: []byte("-- name: x\nselect 1\n-- name: x\nselect 2\n")}},
		"recursive":         {"sql/list.sql": {Data: []byte("select {{all}}")}, "sql/parts.sql": {Data: []byte("-- {{all}}\na {{all}}\n")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("Load did not panic")
				}
			}()
			Load(SQLite, nil, nil, files)
		})
	}
}
