package sqlmutants

import (
	"bufio"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOperandsOfAStatement(t *testing.T) {
	t.Parallel()
	tables := map[string]bool{"closed": true, "entries": true, "entries and": true}
	for _, c := range []struct {
		name, text string
		want       []string // operands; those that become false begin with "or "
	}{
		{"no condition", "insert into a (b) values (?1) on conflict (b) do nothing", nil},
		{"one", "delete from a where id = ?1", []string{"id = $1"}},
		{"a parameter of the other dialect", "delete from holdfast.a where id = $1", []string{"id = $1"}},
		{"several", "select 1 from a where x\n  = 1 -- why\n  and not b and c is null order by d and e limit 1", []string{"x = 1", "not b", "c is null", "d", "e"}},
		{"constants", "select 1 from a where true and b", []string{"b"}},
		{"between", "select 1 from a where b between 1 and 2 and c", []string{"b between 1 and 2", "c"}},
		{"a selected range", "select b between 1 and 2 as c from a", nil},
		{"or", "select 1 from a where b and c or d", []string{"b and c or d", "or b and c", "b", "c", "or d"}},
		{"parentheses", "select 1 from a where b and (c or not (d and e))", []string{"b", "(c or not (d and e))", "or c", "or not (d and e)", "d", "e"}},
		{"a negation", "select 1 from a where b and not (c or d)", []string{"b", "not (c or d)", "or c", "or d"}},
		{"a row", "select 1 from a where (b, c) > (1, 2) and d", []string{"(b, c) > (1, 2)", "d"}},
		{"joins", "select 1 from a left join b on b.x = a.x and b.y join c on c.x = a.x, d where e", []string{"b.x = a.x", "b.y", "c.x = a.x", "e"}},
		{"functions with the names of joins", "select 1 from a where b and left(c, 1) = 'x'", []string{"b", "left(c, 1) = 'x'"}},
		{"a subquery", "select 1 from a where not exists (select 1 from b where c and d) and e",
			[]string{"not exists (select 1 from b where c and d)", "c", "d", "e"}},
		{"groups", "select count(*) filter (where b) from a group by c having count(*) > 1 and d", []string{"b", "count(*) > 1", "d"}},
		{"case", "select case when b and c then 1 when d then 2 else 3 end from a", []string{"b", "c", "d"}},
		{"case in a condition", "select 1 from a where b and case when c then d else e end and f",
			[]string{"b", "case when c then d else e end", "c", "f"}},
		{"case of values", "select case b when 1 then 2 end from a", nil},
		{"iif", "select iif(b and c, 1, 2) from a", []string{"b", "c"}},
		{"a value", "select a, (b or c) and d as e, f from g", []string{"(b or c)", "or b", "or c", "d"}},
		{"an argument", "select sum(b and c), d from g", []string{"b", "c"}},
		{"an upsert", "insert into a values (1) on conflict (b) where c is null do update set d = 1 where a.e and f",
			[]string{"a.e", "f"}},
		{"an update", "update a set b = case when c then 1 end, d = 2 where e returning f", []string{"c", "e"}},
		{"the difference of nulls", "select 1 from a where b is distinct from c and d is not distinct from e",
			[]string{"b is distinct from c", "d is not distinct from e"}},
		{"distinct on", "select distinct on (b) b from a where c", []string{"c"}},
		{"strings", `select 'where a and b', "x and y" from a where b = 'it''s; and' and c`, []string{"b = 'it''s; and'", "c"}},
		{"comments", "select 1 /* where a and b */ from c -- where d and e\nwhere f", []string{"f"}},
		{"several statements", "delete from a where b; delete from c where d", []string{"b", "d"}},
		{"macros", "select 1 from a where {{which}} and b in {{in($1)}} and {{at({{now}})}} > 1", []string{"{{which}}", "b in {{in($1)}}", "{{at({{now}})}} > 1"}},
		{"a part with a where clause", "select 1 from {{closed}} and (b or c) limit 1", []string{"(b or c)", "or b", "or c"}},
		{"such a part without more", "select 1 from {{closed}} order by b", nil},
		{"an unfinished part", "select 1 from a {{entries}} b and c order by d", []string{"b", "c"}},
		{"a part that is continued", "select 1 from a where b and c <", []string{"b"}},
		{"a part that is a condition", "id = ?2", []string{"id = $2"}},
		{"a part of columns", "a, b = 1 as c", nil},
		{"the same operand twice", "select 1 from a where b or b", []string{"b or b", "or b", "or b #2"}},
		{"a lock", "select 1 from a where b and c = $1 {{lock(of a)}}", []string{"b", "c = $1"}},
		{"casts and json", "select 1 from a where b ->> 'x' = $1::text and c @> d", []string{"b ->> 'x' = $1::text", "c @> d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found, err := mutants("x", c.text, tables)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range found {
				if text := fold(c.text[m.from:m.to]); !strings.HasPrefix(m.Operand, text) {
					t.Errorf("the place of %q has %q", m.Operand, text)
				}
				if m.With == "false" {
					m.Operand = "or " + m.Operand
				}
				got = append(got, m.Operand)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

func TestMutantsKeepTheParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ operand, value, want string }{
		{"a is null", "true", "true"},
		{"a = $1 -- not $2\n", "true", "(true or $1 is null)"},
		{"a in (?1, ?12)", "false", "(false and ?1 is null and ?12 is null)"},
	} {
		if got := constant(c.operand, c.value); got != c.want {
			t.Errorf("%s becomes %s, want %s", c.operand, got, c.want)
		}
	}
}

func TestUnbalancedStatementsAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"select (1", "select 1)", "select case when a then b", "select (case when a then b) end"} {
		if _, err := mutants("x", text, nil); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestSectionsOfAFile(t *testing.T) {
	t.Parallel()
	text := "-- The file.\n\n-- name: one\nselect 1\n\n-- {{two}}: a part.\na and b\n"
	var got []string
	for _, s := range split("f.sql", "f", text) {
		if text[s.from:s.to] != s.text {
			t.Errorf("the place of %s has %q", s.name, text[s.from:s.to])
		}
		got = append(got, s.name+": "+strings.TrimSpace(s.text))
	}
	if want := []string{"one: select 1", "two: a and b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if whole := split("f.sql", "f", "select 1"); len(whole) != 1 || whole[0].name != "f" {
		t.Errorf("a file without headings: %+v", whole)
	}
}

// Every statement of the adapter is understood, also those of roles that the table does not have yet.
func TestAllStatementsAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*.sql"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".sql")
			if _, err := mutantsOf(filepath.Join("..", ".."), role{name: name}); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func TestTheFirstFailureDecides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		output string
		want   verdict
	}{
		{"no mutant", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n", verdict{outcome: unused, ran: 1}},
		{"a survivor", "=== RUN   TestA\n" + applied + "\n--- PASS: TestA (0.00s)\nPASS\n", verdict{outcome: survived, ran: 1}},
		{"a failure", applied + "\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n        a.go:1: no\n        --- FAIL: TestA/b/c (0.00s)\n--- FAIL: TestB (0.00s)\n",
			verdict{outcome: killed, detail: "TestA/b/c"}},
		{"no statement", applied + "\n    a.go:1: SQL logic error: near \"x\"\n--- FAIL: TestA (0.00s)\n", verdict{outcome: broken, detail: "a.go:1: SQL logic error: near \"x\""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := verdict{outcome: unused}
			v.read(bufio.NewScanner(strings.NewReader(c.output)))
			if v != c.want {
				t.Errorf("got %+v, want %+v", v, c.want)
			}
		})
	}
}
