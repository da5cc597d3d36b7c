package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// world is the state of a fake store and a fake broker. A server does not answer if its error is set.
type world struct {
	storeErr, schemaErr, brokerErr, servedErr error
	queues                                    []store.Queue
	workers                                   []store.Worker
	janitors                                  Janitors
	depths                                    map[string]broker.Depth
	gates                                     []store.Gate
	keys                                      []store.OrderedKey
	topics                                    []store.TopicQueue
	plans                                     []store.Plan
	missing                                   bool // all objects are missing in the broker
	closed                                    []string
}

func (w *world) system(embedded bool) System {
	s := System{Database: "db", Prefix: "p", HoldingQueues: 1}
	s.OpenStore = func(context.Context) (OpenStore, error) { return &storeDouble{w}, w.storeErr }
	if embedded {
		s.Served = func() error { return w.servedErr }
	} else {
		s.Brokers = []string{"mq"}
		s.OpenBroker = func(context.Context) (OpenBroker, error) { return &brokerDouble{w}, w.brokerErr }
	}
	return s
}

type storeDouble struct{ *world }

func (s *storeDouble) Close() error                                  { s.closed = append(s.closed, "store"); return nil }
func (s *storeDouble) Now(context.Context) (time.Time, error)        { return time.Now(), nil }
func (s *storeDouble) CheckSchema(context.Context) error             { return s.schemaErr }
func (s *storeDouble) Incarnation(context.Context) (string, error)   { return "1", nil }
func (s *storeDouble) QueueNames(context.Context) ([]string, error)  { return []string{"a"}, nil }
func (s *storeDouble) Queues(context.Context) ([]store.Queue, error) { return s.queues, nil }
func (s *storeDouble) Gates(context.Context) ([]store.Gate, error)   { return s.gates, nil }
func (s *storeDouble) OrderedKeys(context.Context, bool, int) ([]store.OrderedKey, error) {
	return s.keys, nil
}
func (s *storeDouble) TopicQueues(context.Context) ([]store.TopicQueue, error) { return s.topics, nil }
func (s *storeDouble) Settings(context.Context) ([]Check, error)               { return nil, nil }
func (s *storeDouble) Workers(context.Context, bool) ([]store.Worker, error)   { return s.workers, nil }
func (s *storeDouble) ListPlans(_ context.Context, f store.PlanFilter) ([]store.Plan, error) {
	plans := slices.DeleteFunc(slices.Clone(s.plans), func(p store.Plan) bool { return p.Kind != f.Kind })
	i, _ := slices.BinarySearchFunc(plans, f.After+"\x00", func(p store.Plan, name string) int { return strings.Compare(p.Name, name) })
	return plans[i:min(len(plans), i+f.Limit)], nil
}

// ListOperations returns an operation that cancels the batch 7, and one that retries the batch 8.
func (s *storeDouble) ListOperations(context.Context, store.OperationFilter) ([]store.Operation, error) {
	return []store.Operation{
		{Action: store.ActionCancel, Filter: store.Filter{Batch: 7}}, {Action: store.ActionRetry, Filter: store.Filter{Batch: 8}},
	}, nil
}

func (s *storeDouble) MigrationStatus(context.Context) ([]store.Migration, error) {
	return []store.Migration{{Version: 3}}, nil
}
func (s *storeDouble) Janitors(context.Context, time.Duration) (Janitors, error) {
	return s.world.janitors, nil
}

type brokerDouble struct{ *world }

func (b *brokerDouble) Close() error                            { b.closed = append(b.closed, "broker"); return nil }
func (b *brokerDouble) Server(context.Context) ([]Check, error) { return nil, nil }
func (b *brokerDouble) Depths(context.Context, []string) (map[string]broker.Depth, error) {
	return b.depths, nil
}
func (b *brokerDouble) Compare(_ context.Context, objects []broker.Object) (checks []Check, err error) {
	for _, o := range objects {
		c := Check{Name: o.Name, Severity: OK, Detail: "as it should be"}
		if b.missing {
			c.Severity, c.Detail, c.Remedy = Failed, Missing, holdfast.Hint{Kind: holdfast.HintDeclareTopology}
		}
		checks = append(checks, c)
	}
	return checks, nil
}

// text returns a line for each check that is not OK.
func text(r Report) string {
	var lines []string
	for _, c := range r.Checks {
		if c.Severity != OK {
			lines = append(lines, fmt.Sprintf("%s %s %s", c.Name, c.Severity, c.Remedy.Kind))
		}
	}
	return strings.Join(lines, "\n")
}

func TestExamine(t *testing.T) {
	t.Parallel()
	live := store.Worker{WorkerInfo: store.WorkerInfo{Name: "ann", Concurrency: 4}, LeaseUntil: time.Now().Add(time.Hour)}
	dead := live
	dead.LeaseUntil = time.Now().Add(-time.Hour)
	broken := store.Gate{Kind: store.GateBreaker, Subject: store.Subject{Target: "https://a.example:443"}, ClosedAt: time.Now().Add(-48 * time.Hour), Blocked: 3}
	tripped, fresh := broken, broken
	tripped.ClosedAt, fresh.ClosedAt = time.Now().Add(-2*time.Minute), time.Now()
	paused := store.Gate{Subject: store.Subject{Queue: "a"}, ClosedAt: time.Now().Add(-time.Hour)}
	forgotten := store.Gate{Subject: store.Subject{Type: "mail"}, ClosedAt: time.Now().Add(-48 * time.Hour)}
	due := []store.Queue{{Name: "a", Due: 2, OldestDue: time.Minute}}
	unavailable := fmt.Errorf("%w: refused", holdfast.ErrUnavailable)
	consumed := map[string]broker.Depth{"p.main.a": {Consumers: 1}}
	for name, c := range map[string]struct {
		world       world
		embedded    bool
		want        string
		unreachable bool
		closed      string
	}{
		"healthy":            {world{workers: []store.Worker{live}}, false, "", false, "broker store"},
		"healthy, in a file": {world{workers: []store.Worker{live}}, true, "dead letters skipped ", false, "store"},
		"no file yet": {world{storeErr: holdfast.WithHint(holdfast.ErrNotFound, holdfast.Hint{Kind: holdfast.HintCreateDatabase})}, true,
			"store warning create_database", false, ""},
		"no store":  {world{storeErr: unavailable}, false, "store failed retry\ntopology skipped ", true, "broker"},
		"no broker": {world{brokerErr: unavailable, workers: []store.Worker{live}}, false, "broker failed reach_broker\ndead letters skipped ", true, "store"},
		"an old schema": {world{schemaErr: holdfast.WithHint(store.ErrSchema, holdfast.Hint{Kind: holdfast.HintMigrate})}, false,
			"schema failed migrate\ntopology skipped ", false, "broker store"},
		"a wiped broker": {world{missing: true, workers: []store.Worker{live}}, false,
			"topology failed declare_topology\nmarker failed declare_topology", false, "broker store"},
		"no worker":                    {world{}, false, "workers warning serve", false, "broker store"},
		"no worker, and overdue tasks": {world{queues: due}, false, "workers failed serve\nqueues failed serve_queue", false, "broker store"},
		"a queue is not consumed": {world{queues: due, workers: []store.Worker{live}, depths: map[string]broker.Depth{"p.main.a": {}}}, false,
			"queues failed readiness", false, "broker store"},
		"a slow worker": {world{queues: due, workers: []store.Worker{live}, depths: consumed}, false, "", false, "broker store"},
		"no active janitor": {world{workers: []store.Worker{live, dead}, janitors: Janitors{LastTurn: -1}}, false,
			"janitors failed serve_janitor", false, "broker store"},
		"an old outbox entry": {world{workers: []store.Worker{live}, janitors: Janitors{OutboxEntries: 1}}, false, "outbox entries failed advice", false, "broker store"},
		"a failing duty": {world{workers: []store.Worker{live}, janitors: Janitors{Failing: []store.DutyFailure{{Janitor: "ann", Duty: "fold counts", Error: "no"}}}}, false,
			"duties failed advice", false, "broker store"},
		"many failing duties": {world{workers: []store.Worker{live}, janitors: Janitors{Failing: make([]store.DutyFailure, maxDuties+1)}}, false,
			strings.TrimSuffix(strings.Repeat("duties failed advice\n", maxDuties+1), "\n"), false, "broker store"},
		"a restore": {world{workers: []store.Worker{live}, janitors: Janitors{LostCommits: time.Now()}}, false,
			"restore warning restart_workers", false, "broker store"},
		"a served file":    {world{workers: []store.Worker{live}, janitors: Janitors{LastTurn: -1}}, true, "dead letters skipped ", false, "store"},
		"an unserved file": {world{servedErr: unavailable}, true, "broker warning serve\nworkers warning serve\ndead letters skipped ", false, "store"},
		"a paused queue without consumers": {world{queues: due, workers: []store.Worker{live}, depths: map[string]broker.Depth{"p.main.a": {}}, gates: []store.Gate{paused}}, false,
			"", false, "broker store"},
		"no worker, and a paused queue": {world{queues: due, gates: []store.Gate{paused}}, false, "workers warning serve", false, "broker store"},
		"a breaker of two minutes":      {world{workers: []store.Worker{live}, gates: []store.Gate{tripped}}, false, "gates warning resume_target", false, "broker store"},
		"a breaker of a few seconds":    {world{workers: []store.Worker{live}, gates: []store.Gate{fresh}}, false, "", false, "broker store"},
		"a breaker of two days": {world{workers: []store.Worker{live}, gates: []store.Gate{broken}}, false,
			"gates warning resume_target", false, "broker store"},
		"a pause of two days": {world{workers: []store.Worker{live}, gates: []store.Gate{forgotten, paused}}, false,
			"gates warning resume_type", false, "broker store"},
		"a key that is blocked for two days": {world{workers: []store.Worker{live}, keys: []store.OrderedKey{
			{Key: "a", Active: 7, State: holdfast.Dead, Since: time.Now().Add(-48 * time.Hour), Waiting: 3}}}, false,
			"ordered keys warning blocked_key", false, "broker store"},
		"topics without a worker": {world{workers: []store.Worker{live}, topics: []store.TopicQueue{{Queue: "a", Topics: 3}, {Queue: "b", Topics: 1, Executors: 1}}}, false,
			"topics warning serve", false, "broker store"},
		"dead letters": {world{workers: []store.Worker{live}, depths: map[string]broker.Depth{"p.rescue": {Ready: 1}, "p.quarantine": {Ready: 2}}}, false,
			"dead letters warning advice\ndead letters warning read_quarantine", false, "broker store"},
	} {
		got := Examine(t.Context(), c.world.system(c.embedded))
		if text(got) != c.want || got.Unreachable != c.unreachable || strings.Join(c.world.closed, " ") != c.closed {
			t.Errorf("%s: unreachable %t, closed %q\n%s\nwant\n%s", name, got.Unreachable, c.world.closed, text(got), c.want)
		}
	}
}

func TestAnErrorBecomesACheck(t *testing.T) {
	t.Parallel()
	other := holdfast.Advice("look there")
	hint := holdfast.Hint{Kind: holdfast.HintMigrate}
	invalid := fmt.Errorf("%w: bad value; it is odd", holdfast.ErrInvalid)
	for _, c := range []struct {
		err  error
		want Check
	}{
		{holdfast.WithHint(invalid, hint), Check{"a", Failed, "bad value; it is odd", hint}},
		{fmt.Errorf("read: %w", holdfast.WithHint(invalid, hint)), Check{"a", Failed, "read: invalid: bad value; it is odd", hint}},
		{errors.New("no idea"), Check{"a", Failed, "no idea", other}},
	} {
		if got := Failure("a", c.err, other); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}

func TestChecksOfWork(t *testing.T) {
	t.Parallel()
	late := []store.Queue{{Name: "a", Due: 2, OldestDue: time.Minute}, {Name: "b", Due: 5, OldestDue: time.Second}}
	all := []store.Worker{{WorkerInfo: store.WorkerInfo{Name: "ann", Concurrency: 4}, Running: 3}}
	now := time.Now()
	blocked := func(id holdfast.TaskID, hours, waiting int) store.OrderedKey {
		return store.OrderedKey{Key: fmt.Sprintf("k%d", id), Active: id, State: holdfast.Dead, Since: now.Add(time.Duration(-hours) * time.Hour), Waiting: waiting}
	}
	for name, c := range map[string]struct {
		examine  func(*examination)
		severity Severity
		text     string
	}{
		"workers":                       {func(e *examination) { e.examineWorkers(all, late) }, OK, "1 live worker: 3 of 4 handlers"},
		"no workers":                    {func(e *examination) { e.examineWorkers(nil, nil) }, Warning, "no live worker"},
		"no workers, and overdue tasks": {func(e *examination) { e.examineWorkers(nil, late) }, Failed, "2 tasks are due, the first for 1m0s"},
		"never restored":                {func(e *examination) { e.examineRestore(time.Now(), time.Time{}) }, OK, "no worker"},
		"restored":                      {func(e *examination) { e.examineRestore(time.Now(), time.Now().Add(-time.Hour)) }, Warning, "1h0m0s ago"},
		"restored long ago":             {func(e *examination) { e.examineRestore(time.Now(), time.Now().Add(-48*time.Hour)) }, OK, "no worker"},
		"queues":                        {func(e *examination) { e.examineQueues(t.Context(), all, late) }, OK, ""},
		"parked, and unhandled": {func(e *examination) {
			e.examineParked([]store.Worker{{WorkerInfo: store.WorkerInfo{Types: []string{"x"}}}}, []store.Queue{{Name: "a", ParkedTypes: []string{"x", "y"}}})
		}, Warning, `a: tasks of the type "y" are parked, and no live worker has a handler for it handle_type y`},
		"parked, and handled": {func(e *examination) {
			e.examineParked([]store.Worker{{WorkerInfo: store.WorkerInfo{Types: []string{"x"}}}}, []store.Queue{{Name: "a", ParkedTypes: []string{"x"}}})
		}, OK, "no task is parked"},
		"parked, and perhaps handled": {func(e *examination) {
			e.examineParked([]store.Worker{{}}, []store.Queue{{Name: "a", ParkedTypes: []string{"x"}}})
		}, OK, "no task is parked"},
		"dead tasks": {func(e *examination) { e.examineDead([]store.Queue{{Name: "a", Dead: 3}, {Name: "b"}}) }, Warning, "3 tasks are dead, in a list_dead"},
		"dead tasks of two queues": {func(e *examination) {
			e.examineDead([]store.Queue{{Name: "a", Dead: 3}, {Name: "b", Dead: 1}})
		}, Warning, "4 tasks are dead, in several queues"},
		"no dead tasks": {func(e *examination) { e.examineDead([]store.Queue{{Name: "a"}}) }, OK, "no task is dead"},
		"blocked keys": {func(e *examination) {
			e.examineKeys(now, []store.OrderedKey{blocked(1, 25, 1), blocked(2, 48, 3), blocked(3, 23, 1), blocked(4, 99, 0)})
		}, Warning, `task 2 has been dead for 48h0m0s and blocks the key "k2", and 3 tasks wait behind it; 1 other key is blocked for more than a day, too blocked_key 2`},
		"a blocked key": {func(e *examination) { e.examineKeys(now, []store.OrderedKey{blocked(1, 25, 1)}) }, Warning, "1 task waits behind it blocked_key 1"},
		"a doomed key": {func(e *examination) {
			e.examineKeys(now, []store.OrderedKey{{Key: "a", Active: 9, Since: now.Add(-48 * time.Hour), Doomed: true}})
		}, Warning, "later ordered tasks of the key die without an attempt blocked_key 9"},
		"keys that are blocked for some hours": {func(e *examination) { e.examineKeys(now, []store.OrderedKey{blocked(3, 23, 1)}) }, OK, "no dead task has blocked its key"},
		"a draining worker": {func(e *examination) {
			e.examineQueues(t.Context(), []store.Worker{{Draining: true}}, late)
		}, Failed, "a: 2 tasks are due, the first for 1m0s, and no live worker"},
		"a queue of others": {func(e *examination) {
			e.examineQueues(t.Context(), []store.Worker{{WorkerInfo: store.WorkerInfo{Queues: []string{"b"}}}}, late)
		}, Failed, "no live worker consumes this queue serve_queue a"},
	} {
		e := &examination{}
		c.examine(e)
		if len(e.Checks) != 1 {
			t.Errorf("%s: %+v", name, e.Checks)
			continue
		}
		f := e.Checks[0]
		if line := fmt.Sprint(f.Detail, " ", f.Remedy.Kind, " ", f.Remedy.Arg); f.Severity != c.severity || !strings.Contains(line, c.text) {
			t.Errorf("%s: %s %s", name, f.Severity, line)
		}
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	object := func(name, detail string) Check {
		severity := Failed
		if detail == "" {
			severity = OK
		}
		return Check{Name: name, Severity: severity, Detail: detail, Remedy: holdfast.Advice("r")}
	}
	got := summarize([]Check{object("q1", ""), object("q2", Missing), object("q3", "x-message-ttl is 1"), object("q4", Missing), object("m", Missing)})
	text := ""
	for _, f := range got {
		text += fmt.Sprintf("%s %s %s\n", f.Name, f.Severity, f.Detail)
	}
	if want := `topology failed q3: x-message-ttl is 1
topology failed 2 of 4 queues are missing: q2, q4
marker failed missing: the broker was wiped, or never had the queues of this store; when they are declared, every waiting task gets a new ticket
`; text != want {
		t.Errorf("got\n%s", text)
	}
	got = summarize([]Check{object("q1", ""), object("m", "")})
	if len(got) != 2 || got[0].Detail != "1 queue is as it should be" || got[1].Severity != OK {
		t.Errorf("got %+v", got)
	}
}
