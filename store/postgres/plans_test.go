package postgres_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// runOn returns a function that executes statements on a connection.
func runOn(t *testing.T, conn *sql.Conn) func(text string) {
	return func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// The server accepts the text of each statement, even if no other test executes it. With -v, the test prints the texts.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	texts := s.Texts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if testing.Verbose() {
			t.Logf("%s:\n%s", name, texts[name])
		}
		if strings.Contains(texts[name], ";\n") { // several statements without parameters
			continue
		}
		prepared, err := conn.PrepareContext(t.Context(), texts[name])
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, texts[name])
			continue
		}
		if err := prepared.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The server plans a prepared statement once, perhaps when the table is empty. Every such plan must look up tasks and
// outbox entries by their ids. If the table grows later, any other plan would read the whole table for every page.
func TestPreparedLookUpsAreByIDWheneverTheyWerePlanned(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := runOn(t, conn)
	run("set plan_cache_mode = force_generic_plan")
	calls := map[string]string{
		"claim_range":          `1, '\x01', 1, '{t}', '{1}', false, 0, '{1}', '{1}', '{0}'`,
		"claim_range_gated":    `1, '\x01', 1, '{t}', '{1}', false, 0, '{1}', '{1}', '{0}'`,
		"complete_range":       `'\x01', 1, 1, '{1}', '{1}', '{0}', 1, 'default', 't', 0`,
		"complete_range_mixed": `'\x01', 1, 1, '{1}', '{1}', '{0}', 1`,
		"committed_outbox":     `'{1}'`,
		"release":              `1`,
		"plan_tally":           `'[{"chunk": 0, "plan": 1, "first": 1, "last": 1000}]'`,
		"permits_free":         `'{1}'`,
		"reserving":            `'{1}'`,
		"candidates":           `'[{"gate_id": 1, "bucket": "", "n": 1}]'`,
		"blocked_by_queue":     `1`,
		"insert_holders":       `'{k}'`,
	}
	byID, whole := regexp.MustCompile(`Index Cond: \(+id `), regexp.MustCompile(`Seq Scan on (tasks|outbox)|Scan using tasks_unique .*\n +[^I ]`)
	for name := range calls {
		run("prepare " + name + " as " + s.Text(name))
	}
	for _, rows := range []int{-1, 0, 1, 500} { // -1: before the first analyze
		if rows > 0 {
			insert(t, s, rows)
		}
		if rows >= 0 {
			change(t, s, "analyze tasks, outbox") // the server then plans the statements again
		}
		for name, args := range calls {
			lines, err := conn.QueryContext(t.Context(), "explain execute "+name+" ("+args+")")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var plan strings.Builder
			for lines.Next() {
				var line string
				if err := lines.Scan(&line); err != nil {
					t.Fatal(err)
				}
				plan.WriteString(line + "\n")
			}
			if err := lines.Err(); err != nil {
				t.Fatal(err)
			}
			if !byID.MatchString(plan.String()) || whole.MatchString(plan.String()) {
				t.Errorf("%s, planned with %d rows:\n%s", name, rows, plan.String())
			}
		}
	}
}

// limitsOf has statements that store 1,000 limits. None of the limits applies to a task of the type t without a key.
var limitsOf = map[string]string{
	"single keys": `insert into gates (kind, key, actor, surface, rate_count, rate_per) select 'limit', 'k' || n, 'test', 'cli', 1, 1000000 from generate_series(1, 1000) n`,
	"types":       `insert into gates (kind, type, actor, surface, rate_count, rate_per) select 'limit', 't' || n, 'test', 'cli', 1, 1000000 from generate_series(1, 1000) n`,
	"targets":     `insert into gates (kind, target, actor, surface, rate_count, rate_per) select 'limit', 'https://' || n || '.example:443', 'test', 'cli', 1, 1000000 from generate_series(1, 1000) n`,
	"per key":     `insert into gates (kind, type, actor, surface, rate_count, rate_per) select 'limit per key', 't' || n, 'test', 'cli', 1, 1000000 from generate_series(1, 1000) n`,
	"per target":  `insert into gates (kind, type, actor, surface, rate_count, rate_per) select 'limit per target', 't' || n, 'test', 'cli', 1, 1000000 from generate_series(1, 1000) n`,
	"queues":      `insert into gates (kind, queue, actor, surface, rate_count, rate_per) select 'limit', 'q' || n, 'test', 'cli', 1, 1000000 from generate_series(1, 1000) n`,
	"mixed": `insert into gates (kind, queue, type, key, target, actor, surface, rate_count, rate_per)
		select (array['limit', 'limit per key', 'limit per target'])[n % 3 + 1], case when n % 2 = 0 then 'default' else '' end, 't' || n,
			case when n % 3 = 0 then 'k' || n % 7 else '' end, case when n % 6 = 0 then 'https://' || n || '.example:443' else '' end, 'test', 'cli', 1, 1000000
		from generate_series(1, 1000) n`,
}

// A claim reads a few pages of the gates for each task, for any number of gates. That is true for a plan from any time.
func TestClaimsReadFewGates(t *testing.T) {
	t.Parallel()
	const tasks, shapes, pagesOfTask = 100, 64, 16
	for _, planned := range []string{"never analyzed", "analyzed without gates", "analyzed"} {
		s := pgtest.Open(t) // other tests may have analyzed the tables of a reused schema
		worker := registerWorker(t, s)
		conn, err := s.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		run := runOn(t, conn)
		tickets := insert(t, s, tasks)
		first, last := int64(tickets[0].Task), int64(tickets[tasks-1].Task)
		bits := strings.Repeat("ff", (tasks+7)/8)
		var ids, attempts []string
		for _, ticket := range tickets {
			ids, attempts = append(ids, ticket.Task.String()), append(attempts, "1")
		}
		calls := map[string]string{
			"claim_range_gated": fmt.Sprintf(`%d, '\x%s', 1, '{t}', '{1}', false, 0, '{%d}', '{%d}', '{0}'`, worker, bits, first, last),
			"claim":             fmt.Sprintf(`%d, '{%s}', '{%s}', '{t}', '{1}', false, true, 0`, worker, strings.Join(ids, ","), strings.Join(attempts, ",")),
		}
		run("set plan_cache_mode = force_generic_plan")
		run("set search_path = " + s.Schema())
		for name := range calls {
			run("prepare " + name + " as " + s.Text(name))
		}
		for _, limits := range slices.Sorted(maps.Keys(limitsOf)) {
			if planned == "analyzed without gates" {
				run("analyze gates")
			}
			for name, args := range calls {
				run("explain execute " + name + " (" + args + ")") // plans the statement
			}
			run(limitsOf[limits])
			if planned == "analyzed" {
				run("analyze gates")
			}
			for name, args := range calls {
				run("begin")
				claimed, gates := gatesRead(t, conn, "explain (analyze, buffers, format json) execute "+name+" ("+args+")")
				run("rollback")
				var rows, pages int
				for _, n := range gates {
					rows += int((n.Rows + n.Removed) * n.Loops)
					pages += n.Hit + n.Read
				}
				if claimed != tasks || rows > shapes || pages > pagesOfTask*tasks {
					t.Errorf("%s, %s, with 1,000 limits of %s, claims %d tasks and reads %d rows and %d pages of gates: %+v", name, planned, limits, claimed, rows, pages, gates)
				}
			}
			run("truncate gates") // while another test has an old transaction, a statement would still read deleted rows
		}
	}
}

// node is a part of a plan.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []node
}

// gatesRead explains the execution of a claim. It returns the number of tasks that the statement claims, and the parts
// of its plan that read gates.
func gatesRead(t *testing.T, conn *sql.Conn, explain string) (claimed int, gates []node) {
	t.Helper()
	var text string
	var plans []struct{ Plan node }
	if err := conn.QueryRowContext(t.Context(), explain).Scan(&text); err != nil {
		t.Fatalf("%s: %v", explain, err)
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	var add func(node)
	add = func(n node) {
		if n.Relation == "gates" {
			gates = append(gates, n)
		}
		for _, part := range n.Plans {
			add(part)
		}
	}
	add(plans[0].Plan)
	return int(plans[0].Plan.Rows), gates
}

// The server may plan a claim five times. Then it must use one plan, for any number of gates.
func TestClaimsWithGatesAreNotPlannedEachTime(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker, tickets := registerWorker(t, s), insert(t, s, 100)
	for _, limits := range []string{"none", "single keys", "mixed"} {
		conn, err := s.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run := runOn(t, conn)
		run("set search_path = " + s.Schema())
		if limits != "none" {
			run(limitsOf[limits])
		}
		for _, name := range []string{"claim_range", "claim_range_gated"} {
			run("prepare " + name + " as " + s.Text(name))
			for range 10 {
				run(fmt.Sprintf(`execute %s (%d, '\x%s', 7, '{t}', '{1}', false, 0, '{%d}', '{%d}', '{0}')`, name, worker, strings.Repeat("ff", 13), tickets[0].Task, tickets[99].Task))
			}
			var generic, custom int
			if err := conn.QueryRowContext(t.Context(), "select generic_plans, custom_plans from pg_prepared_statements where name = $1", name).Scan(&generic, &custom); err != nil {
				t.Fatal(err)
			}
			if custom > 5 {
				t.Errorf("with 1,000 limits of %s, %s was planned %d times in 10 executions", limits, name, custom)
			}
			run("deallocate " + name)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
