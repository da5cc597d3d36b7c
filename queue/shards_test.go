package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var ada = store.Actor{Name: "ada", Surface: store.CommandLine}

// runningPass is a pass whose handler waits for the test.
type runningPass struct {
	*queue.Pass
	ctx    context.Context
	task   holdfast.Task
	result chan error // the test sends the result of the handler
}

// passes has the passes that run, by zone.
type passes map[string]chan runningPass

// handlePasses registers a handler whose passes the test controls.
func (w *fixture) handlePasses(q *queue.Client, taskType string, zones ...string) passes {
	w.Helper()
	all := make(passes)
	for _, zone := range zones {
		all[zone] = make(chan runningPass, 100)
	}
	type taskKey struct{}
	remember := func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, task holdfast.Task) error {
			return next(context.WithValue(ctx, taskKey{}, task), task)
		}
	}
	w.must(queue.HandleShards(q, taskType, func(ctx context.Context, pass *queue.Pass) error {
		r := runningPass{pass, ctx, ctx.Value(taskKey{}).(holdfast.Task), make(chan error)}
		all[pass.Zone] <- r
		select {
		case err := <-r.result:
			return err
		case <-w.Context().Done():
			return nil
		}
	}, queue.Use(remember)))
	return all
}

// next waits until a pass of a zone runs, and checks its shards and its offset.
func (p passes) next(w *fixture, zone, shards string, offset int64) runningPass {
	w.Helper()
	select {
	case r := <-p[zone]:
		if got := strings.Join(r.Shards(), " "); r.Job != "scan" || r.Zone != zone || got != shards || r.Offset() != offset {
			w.Errorf("the pass of zone %s in %s of %s has the shards %s from %d, want %s from %d", r.Zone, zone, r.Job, got, r.Offset(), shards, offset)
		}
		return r
	case <-time.After(slow.Patience()):
		w.Fatalf("no pass of zone %s runs", zone)
	}
	panic("unreachable")
}

// awaitMapChange waits until the context of a pass ends, and ends the pass with a result.
func (r runningPass) awaitMapChange(w *fixture, result error) {
	w.Helper()
	select {
	case <-r.ctx.Done():
	case <-time.After(slow.Patience()):
		w.Fatalf("the pass of zone %s does not end", r.Zone)
	}
	if cause := context.Cause(r.ctx); !errors.Is(cause, queue.ErrMapChanged) {
		w.Errorf("the pass of zone %s has ended with %v", r.Zone, cause)
	}
	for _, ctx := range []context.Context{r.ctx, w.Context()} {
		if err := r.Save(ctx, 1000); !errors.Is(err, queue.ErrMapChanged) {
			w.Errorf("the pass of zone %s saves: %v", r.Zone, err)
		}
	}
	r.result <- result
}

// Zone a has the shards 1 and 2 at the offset 3, zone b has the shard 0 at the offset 7. The shard 1 moves to b. Then a
// is drained, and a person deletes the job.
func TestAShardMoves(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		all := w.handlePasses(q, "scan-orders", "a", "b")
		w.must(q.SetShardJob(t.Context(), queue.ShardJob{
			Name: "scan", Type: "scan-orders", MaxAttempts: 1, Zones: map[string]string{"0": "b", "1": "a", "2": "a"},
		}))
		w.run(q)
		a, b := all.next(w, "a", "1 2", 0), all.next(w, "b", "0", 0)
		if a.Owns("0") || !a.Owns("1") || a.task.Queue != "a" || a.task.Key != "scan" || a.task.MaxAttempts != 1 {
			t.Errorf("pass of a: %+v", a.task)
		}
		w.must(a.Save(t.Context(), 3))
		w.must(b.Save(t.Context(), 7))
		w.must(q.MoveShard(t.Context(), "scan", "1", "b", "more room"))
		a.awaitMapChange(w, nil)
		b.awaitMapChange(w, errors.New("interrupted"))

		a2, b2 := all.next(w, "a", "2", 3), all.next(w, "b", "0 1", 3)
		for _, pass := range [][2]holdfast.Task{{a.task, a2.task}, {b.task, b2.task}} {
			if before, after := pass[0], pass[1]; before.ID != after.ID || after.Attempt != 2 || after.Failures != 0 || after.Deferrals != 1 {
				t.Errorf("task %+v\nfollows %+v", after, before)
			}
		}
		if b2.OffsetOf("0") != 7 || b2.OffsetOf("1") != 3 || b2.OffsetOf("2") != 0 {
			t.Errorf("the offsets are %d, %d, %d", b2.OffsetOf("0"), b2.OffsetOf("1"), b2.OffsetOf("2"))
		}
		w.must(b2.Save(t.Context(), 9))
		b2.result <- nil
		b3 := all.next(w, "b", "0 1", 9)
		if b3.task.ID == b2.task.ID {
			t.Errorf("the pass has not ended: %+v", b3.task)
		}

		w.must(q.DrainZone(t.Context(), "scan", "a", ""))
		a2.awaitMapChange(w, nil)
		b3.awaitMapChange(w, nil)
		if task := w.wait(q, a2.task.ID); task.State != holdfast.Done || task.Attempt != 2 {
			t.Errorf("the task of the drained zone is %+v", task)
		}
		b4 := all.next(w, "b", "0 1 2", 3)
		_, _, err := queue.Backend(q).DeleteShardJob(t.Context(), ada, "scan")
		w.must(err)
		b4.awaitMapChange(w, nil)
		if task := w.wait(q, b4.task.ID); task.State != holdfast.Done {
			t.Errorf("the task of the deleted job is %+v", task)
		}
	})
}

// If Save has reported another shard map, the attempt is deferred although the handler returns nil. An attempt that has
// ended saves nothing.
func TestTheEndOfAPass(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		all := w.handlePasses(q, "scan-orders", "a")
		w.must(q.SetShardJob(t.Context(), queue.ShardJob{Name: "scan", Type: "scan-orders", Zones: map[string]string{"0": "a", "1": "a"}}))
		w.run(q)
		first := all.next(w, "a", "0 1", 0)
		w.must(q.MoveShard(t.Context(), "scan", "1", "elsewhere", ""))
		if err := first.Save(t.Context(), 5); !errors.Is(err, queue.ErrMapChanged) || !errors.Is(context.Cause(first.ctx), queue.ErrMapChanged) {
			t.Errorf("Save after a change: %v, and the context has ended with %v", err, context.Cause(first.ctx))
		}
		first.result <- nil
		second := all.next(w, "a", "0", 0)
		second.result <- errors.New("failed")
		third := all.next(w, "a", "0", 0)
		if third.task.ID != first.task.ID || third.task.Failures != 1 || third.task.Deferrals != 1 {
			t.Errorf("task %+v", third.task)
		}
		if err := second.Save(t.Context(), 5); !errors.Is(err, holdfast.ErrLeaseLost) {
			t.Errorf("Save of an attempt that has ended: %v", err)
		}
		w.must(third.Save(t.Context(), 4))
	})
}

// Processes declare the same job at the same time. A declaration that has not changed writes nothing, and the shard map
// stays.
func TestADeclarationKeepsTheShardMap(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		clients := []*queue.Client{w.open(), w.open()}
		job := queue.ShardJob{Name: "scan", Type: "scan-orders", Every: time.Hour, Note: "n", Zones: map[string]string{"0": "a", "1": "b"}}
		var declaring sync.WaitGroup
		for i := range 6 {
			declaring.Go(func() {
				if err := clients[i%2].SetShardJob(t.Context(), job); err != nil {
					t.Error(err)
				}
			})
		}
		declaring.Wait()
		q := clients[0]
		w.must(q.MoveShard(t.Context(), "scan", "1", "c", "more room"))
		w.must(q.SetShardJob(t.Context(), job))
		job.MaxAttempts = 7
		w.must(q.SetShardJob(t.Context(), job))
		stored, err := queue.Backend(q).ShardJob(t.Context(), "scan")
		w.must(err)
		want := plan.ShardJob{Type: "scan-orders", Every: plan.Duration(time.Hour), Attempts: 7, Note: "n", Map: 2}
		if got := stored.Spec; !maps.Equal(got.Zones, map[string]string{"0": "a", "1": "c"}) || fmt.Sprint(withoutZones(got)) != fmt.Sprint(want) {
			t.Errorf("stored %+v, want %+v", got, want)
		}
		entries, err := queue.Backend(q).Store.AuditLog(t.Context(), store.AuditFilter{Subject: store.PlanSubject(store.ShardKind, "scan"), Limit: 10})
		w.must(err)
		var reasons []string
		for _, e := range slices.Backward(entries) {
			reasons = append(reasons, string(e.Action)+" "+string(e.Surface)+" "+e.Reason)
		}
		if got := strings.Join(reasons, ", "); got != "create library , set library more room, set library " {
			t.Errorf("audit log: %s", got)
		}
	})
}

// A job can be changed while the passes of many zones save offsets all the time.
func TestAShardJobChangesWhilePassesSave(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		job := queue.ShardJob{Name: "scan", Type: "scan-orders", Zones: make(map[string]string)}
		for i := range 6 {
			job.Zones[fmt.Sprint(i)] = fmt.Sprint("zone", i)
		}
		saved, ended := make(chan struct{}, len(job.Zones)), make(chan struct{})
		w.must(queue.HandleShards(q, "scan-orders", func(ctx context.Context, pass *queue.Pass) error {
			for offset := pass.Offset() + 1; ; offset++ {
				if err := pass.Save(ctx, offset); err != nil {
					return err
				}
				select {
				case <-ended:
					return nil
				case saved <- struct{}{}:
				default:
				}
			}
		}))
		w.must(q.SetShardJob(t.Context(), job))
		w.run(q)
		defer close(ended)
		for i := range 20 {
			<-saved
			job.Note = fmt.Sprint("note ", i)
			w.must(q.SetShardJob(t.Context(), job))
		}
	})
}

func withoutZones(j plan.ShardJob) plan.ShardJob {
	j.Zones = nil
	return j
}

func TestWrongShardJobs(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	good := queue.ShardJob{Name: "scan", Type: "scan-orders", Zones: map[string]string{"0": "a"}}
	for text, change := range map[string]func(*queue.ShardJob){
		"name":              func(j *queue.ShardJob) { j.Name = "a b" },
		"needs the type":    func(j *queue.ShardJob) { j.Type = "" },
		"between passes":    func(j *queue.ShardJob) { j.Every = time.Millisecond },
		"max attempts":      func(j *queue.ShardJob) { j.MaxAttempts = -1 },
		"the limit is 1000": func(j *queue.ShardJob) { j.Note = strings.Repeat("n", 1001) },
		"map is empty":      func(j *queue.ShardJob) { j.Zones = nil },
		"has no zone":       func(j *queue.ShardJob) { j.Zones = map[string]string{"0": ""} },
		"the type http":     func(j *queue.ShardJob) { j.Type = holdfast.TypeHTTP },
	} {
		j := good
		change(&j)
		if err := q.SetShardJob(t.Context(), j); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	w.must(q.SetShardJob(t.Context(), good))
	calls := map[string]func(job, part, zone string) error{
		"MoveShard": func(job, shard, zone string) error { return q.MoveShard(t.Context(), job, shard, zone, "") },
		"DrainZone": func(job, _, zone string) error { return q.DrainZone(t.Context(), job, zone, "") },
	}
	for name, call := range calls {
		if err := call("none", "0", "a"); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%s of no job: %v", name, err)
		}
		if err := call("scan", "0", "a b"); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s of a wrong zone: %v", name, err)
		}
	}
	if err := calls["MoveShard"]("scan", "1", "a"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("MoveShard of no shard: %v", err)
	}
	w.must(q.Close())
	calls["SetShardJob"] = func(string, string, string) error { return q.SetShardJob(t.Context(), good) }
	for name, call := range calls {
		if err := call("scan", "0", "b"); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

// A task that is no pass is dead. A pass of no job is done. The handler sees neither.
func TestTasksOfPasses(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	w.must(queue.HandleShards(q, "scan-orders", func(context.Context, *queue.Pass) error {
		t.Error("the handler was called")
		return nil
	}))
	w.run(q)
	for _, payload := range []any{nil, map[string]string{"job": "scan"}, []int{1}} {
		if task := w.wait(q, w.enqueue(q, "scan-orders", payload)); task.State != holdfast.Dead {
			t.Errorf("payload %v: the task is %s", payload, task.State)
		}
	}
	if task := w.wait(q, w.enqueue(q, "scan-orders", plan.PassPayload{Job: "scan", Zone: "a"})); task.State != holdfast.Done {
		t.Errorf("the pass of no job is %s", task.State)
	}
	if err := queue.HandleShards(w.open(), "scan-orders", nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a nil handler: %v", err)
	}
}
