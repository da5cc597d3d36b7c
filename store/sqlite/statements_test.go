package sqlite_test

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// The domain defines the states and events. SQL may quote only their names.
func TestQuotedWordsAreKnown(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"incarnation": true, "settings_version": true, "default": true, "tasks": true, "table": true, "migrations": true, "workers": true, "all": true, "queue": true, "type": true, "state": true, "n": true}
	for _, key := range []string{"task", "attempt", "event", "worker_name", "started_at", "finished_at", "class", "error", "stack", "details"} {
		known[key] = true // the keys of exported attempts
	}
	for _, fault := range store.Faults() {
		known[string(fault.Code)] = true
	}
	for event := range holdfast.Moves() {
		known[string(event)] = true
	}
	for _, state := range holdfast.States() {
		known[string(state)] = true
	}
	for _, state := range []store.TokenState{store.TokenActive, store.TokenExpired, store.TokenRevoked} {
		known[string(state)] = true
	}
	for _, other := range []string{string(store.GatePause), string(store.GateBreaker), string(store.ByWorker), holdfast.TypeHTTP, store.OutputData} {
		known[other] = true
	}
	for _, action := range store.Actions() {
		known[string(action)] = true
	}
	for _, state := range []store.PlanState{store.PlanPaused, store.PlanDone, store.PlanCancelled, store.PlanDeleted} {
		known[string(state)] = true
	}
	for _, state := range []store.PlanItemState{store.ItemOpen, store.ItemClosed, store.ItemDead} {
		known[string(state)] = true
	}
	known[string(store.OperationPlanned)] = true
	known[string(store.BatchKind)] = true
	for _, member := range []string{"name", "value", "at"} { // of the JSON that an export writes
		known[member] = true
	}
	for _, result := range []store.FirstResult{store.FirstSucceeded, store.FirstFailed, store.FirstOther} {
		known[string(result)] = true
	}
	for _, state := range []store.WorkerState{store.WorkerLive, store.WorkerDead, store.WorkerStopped} {
		known[string(state)] = true
	}
	for _, slot := range []string{"held", "blocked", "later", "ended"} { // results of topic_release for a task with a slot
		known[slot] = true
	}
	known["g"] = true // is after each digit of a fingerprint
	texts := sqlite.Statements()
	migration, err := fs.ReadFile(schema.SQLite.FS(), "00001_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	texts["the migration"] = regexp.MustCompile(`--.*`).ReplaceAllString(string(migration), "")
	word := regexp.MustCompile(`'([a-z_]+)'`)
	member := regexp.MustCompile(`->> '[a-z_]+'`) // of an argument in JSON
	for name, text := range texts {
		for _, match := range word.FindAllStringSubmatch(member.ReplaceAllString(text, ""), -1) {
			if !known[match[1]] {
				t.Errorf("%s quotes %q, which is neither a state nor an event", name, match[1])
			}
		}
	}
}

// SQLite accepts the text of each statement, even if no other test executes it. With -v, the test prints the texts.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	s := open(t)
	texts := sqlite.Statements()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if testing.Verbose() {
			t.Logf("%s:\n%s", name, texts[name])
		}
		for statement := range strings.SplitSeq(texts[name], ";\n") {
			if _, err := s.Plan(t.Context(), statement); err != nil {
				t.Errorf("%s: %v\n%s", name, err, statement)
			}
		}
	}
}

// A statement that reads all tasks takes a second for a million tasks. Only statements for people and for exports may
// read all tasks.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	s := open(t)
	scans := []string{"list", "count", "export"}
	// These statements sort the rows of their arguments, the few running tasks, the few groups, gates or failing
	// duties, or the few tables.
	sorts := []string{"abandoned", "death_group", "death_groups", "fingerprints", "list_running", "claim_refused", "positions", "schema_owner", "candidates", "gates_of", "limits_of", "failing_duties", "deaths_keep", "notices_claim", "plans_fail", "plans_postpone"}
	scan := regexp.MustCompile(`^SCAN (tasks|t|a|outbox|o|p|kept_keys)\b`)
	// A statement must look up lists of ids by id, even if it has other conditions.
	byID := regexp.MustCompile(`^S(EARCH|CAN) (tasks|t) `)
	texts := sqlite.Statements()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		if strings.Contains(text, "{{") || strings.Contains(text, "--") {
			t.Errorf("%s is not filled in: %s", name, text)
		}
		if strings.HasPrefix(text, "pragma") {
			continue
		}
		var steps []string
		for statement := range strings.SplitSeq(text, ";\n") {
			part, err := s.Plan(t.Context(), statement)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			steps = append(steps, part...)
		}
		for _, step := range steps {
			if scan.MatchString(step) && !strings.Contains(step, "USING") && !slices.Contains(scans, name) {
				t.Errorf("%s reads a whole table: %s", name, strings.Join(steps, "; "))
			}
			if strings.Contains(text, "json_each(?1)") && !strings.HasPrefix(name, "list") && !strings.HasPrefix(name, "count") && name != "insert_holders" && name != "insert_release" &&
				byID.MatchString(step) && !strings.Contains(step, "INTEGER PRIMARY KEY") {
				t.Errorf("%s does not look up ids: %s", name, strings.Join(steps, "; "))
			}
			if strings.Contains(step, "TEMP B-TREE FOR ORDER BY") && !slices.Contains(sorts, name) {
				t.Errorf("%s sorts: %s", name, strings.Join(steps, "; "))
			}
		}
		if testing.Verbose() {
			t.Logf("%s: %s", name, strings.Join(steps, "; "))
		}
	}
}

// A claim looks up the gates of each task. It checks only once whether it needs the targets of tasks.
func TestClaimLooksUpGates(t *testing.T) {
	t.Parallel()
	steps, err := open(t).Plan(t.Context(), sqlite.Statements()["claim"])
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"SEARCH g USING INDEX gates_lookup (key=? AND target=? AND type=? AND queue=?)", "SCAN gates USING INDEX gates_targets"} {
		i := slices.Index(steps, step)
		if i < 0 {
			t.Fatalf("the plan of a claim has no step %q: %s", step, strings.Join(steps, "; "))
		}
		if before := steps[i-1]; strings.HasPrefix(step, "SCAN") && strings.Contains(before, "CORRELATED") {
			t.Errorf("%s is executed for each task: %s", step, strings.Join(steps, "; "))
		}
	}
}

// A chart, and the deletion of figures, read ranges of the primary key.
func TestFiguresAreReadByKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, step := range map[string]string{
		"figures": "SEARCH figures USING PRIMARY KEY (queue=? AND figure=? AND minute>?)", "figures_prune": "SEARCH f USING PRIMARY KEY (queue=? AND figure=? AND minute<?)",
	} {
		steps, err := s.Plan(t.Context(), sqlite.Statements()[name])
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(steps, "; "); !slices.Contains(steps, step) || strings.Contains(plan, "SCAN f") {
			t.Errorf("%s has no step %q, or reads all figures: %s", name, step, plan)
		}
	}
}

// A group is found by its first digits in the indexes.
func TestFingerprintsAreFoundByIndex(t *testing.T) {
	t.Parallel()
	steps, err := open(t).Plan(t.Context(), sqlite.Statements()["fingerprints"])
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"SEARCH deaths USING COVERING INDEX", "SEARCH d USING COVERING INDEX", "SEARCH dead_groups USING"} {
		if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, step) }) {
			t.Errorf("no %s in %s", step, strings.Join(steps, "; "))
		}
	}
}

// The functions greatest and least ignore null, as in PostgreSQL.
func TestGreatestAndLeast(t *testing.T) {
	t.Parallel()
	s := open(t)
	for expression, want := range map[string]int64{
		"greatest(1, 3, 2)": 3, "least(2, 1, 3)": 1, "greatest(null, 1)": 1, "least(1, null)": 1, "greatest(1.5, 2)": 2, "least(3, 2.0, 2.5)": 2,
		"greatest(9007199254740993, 9007199254740992)": 9007199254740993, "least(null, null) is null": 1,
	} {
		if got := number(t, s, "select "+expression); got != want {
			t.Errorf("%s is %d, want %d", expression, got, want)
		}
	}
	if _, err := s.Number(t.Context(), "select greatest(1, 'a')"); err == nil {
		t.Error("a text is compared with a number")
	}
}

// A plan can have millions of items. A statement that prunes some of them must not read all, because no other process can
// write meanwhile.
func TestItemsOfPlansArePrunedByKey(t *testing.T) {
	t.Parallel()
	steps, err := open(t).Plan(t.Context(), sqlite.Statements()["prune_plan_items"])
	if err != nil {
		t.Fatal(err)
	}
	if plan := strings.Join(steps, "; "); !strings.Contains(plan, "plan_items USING PRIMARY KEY (plan_id=? AND item=?)") {
		t.Errorf("the plan is %s", plan)
	}
}
