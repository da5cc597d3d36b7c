package e2e

import (
	"context"
	"errors"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// vhost is a virtual host of a private broker.
type vhost struct {
	folder, name string
}

// create creates the virtual host.
func (v vhost) create(t *testing.T) {
	t.Helper()
	script(t, v.folder, "private-rabbitmq", nil, "ctl", "add_vhost", v.name)
	script(t, v.folder, "private-rabbitmq", nil, "ctl", "set_permissions", "-p", v.name, "guest", ".*", ".*", ".*")
}

// replace deletes the virtual host with all its queues and messages, and creates an empty one.
func (v vhost) replace(t *testing.T) {
	t.Helper()
	script(t, v.folder, "private-rabbitmq", nil, "ctl", "delete_vhost", v.name)
	v.create(t)
}

// load enqueues tasks until stop is called. stop returns how many tasks were accepted.
func (w *world) load(t *testing.T) (accepted *atomic.Int64, stop func()) {
	accepted = new(atomic.Int64)
	p := w.Producer(nil)
	end := background(t, func(ctx context.Context) error {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			task := holdfast.NewTask{Type: "work", Queue: []string{"a", "b"}[i%2]}
			if i%10 == 0 {
				task.Delay = time.Second
			}
			if _, err := p.Enqueue(context.WithoutCancel(ctx), task); err != nil {
				return err
			}
			accepted.Add(1)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return p.Close()
			}
		}
	})
	return accepted, end
}

// If the virtual host of the broker is deleted and created again under load, every accepted task finishes. The test
// runs with a janitor, with recoveries that are killed and repeated, and with both.
func TestEveryTaskFinishesAfterTheVirtualHostIsReplaced(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	folder, address := privateBroker(t)
	for _, test := range []struct {
		name              string
		janitor, recovery bool
	}{{"janitor", true, false}, {"recovery", false, true}, {"both", true, true}} {
		t.Run(test.name, func(t *testing.T) {
			host := vhost{folder, test.name}
			host.create(t)
			w := newWorldOn(t, databaseURL, address+test.name)
			if test.janitor {
				w.runJanitor(t, w.Backend, nil)
			}
			var executed executions
			w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency = 10 }, map[string]consumer.Handler{"work": executed.handler(60 * time.Millisecond)})
			accepted, stop := w.load(t)
			if !test.janitor { // declares the first queues, as no janitor runs
				poll(t, func() string { return "no task is accepted" }, func(context.Context) bool { return accepted.Load() > 10 })
				w.recover(t)
			}
			poll(t, func() string { return "no backlog" }, func(context.Context) bool { return accepted.Load() > 400 && executed.total.Load() > 20 })
			host.replace(t)
			before := accepted.Load()
			poll(t, func() string { return "no task is accepted while the broker is empty" }, func(context.Context) bool { return accepted.Load() > before+100 })
			if test.recovery && !test.janitor {
				w.checkPlan(t)
			}
			if test.recovery {
				w.killRecoveries(t)
			}
			stop()
			if test.recovery && !test.janitor { // publishes the newest outbox entries and the delayed tasks
				time.Sleep(producer.OutboxGrace + time.Second)
				w.recover(t)
			}
			w.awaitCount(t, holdfast.Done, accepted.Load())
			executed.checkOnce(t)
			if plan, err := w.PlanRecovery(t.Context(), nil); err != nil || len(plan.Missing) > 0 || plan.Lost+plan.Due > 0 {
				t.Errorf("after the recovery the plan is %+v, %v", plan, err)
			}
			t.Logf("%d tasks accepted and done, %d executions", accepted.Load(), executed.total.Load())
		})
	}
}

// checkPlan checks the plan after the loss of all queues.
func (w *world) checkPlan(t *testing.T) {
	t.Helper()
	plan, err := w.PlanRecovery(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !plan.BrokerLost || len(plan.Missing) != plan.Objects || plan.Lost == 0 || plan.Expected <= 0 {
		t.Errorf("the plan is %+v", plan)
	}
	lost := int64(0)
	for _, q := range plan.Queues {
		if lost += q.Lost; q.Lost != q.Ticketed || len(q.Missing) != 2 {
			t.Errorf("the plan for queue %s is %+v", q.Queue, q)
		}
	}
	if lost != plan.Lost {
		t.Errorf("%d tickets of all queues are lost, %d in all", lost, plan.Lost)
	}
}

// recover runs a recovery and checks that its progress does not go back.
func (w *world) recover(t *testing.T) {
	t.Helper()
	var last janitor.RecoveryProgress
	_, err := w.Recover(t.Context(), nil, func(now janitor.RecoveryProgress) {
		if now.Phase == last.Phase && now.Done < last.Done || now.Total > 0 && now.Done > now.Total {
			t.Errorf("the progress is %+v after %+v", now, last)
		}
		last = now
	})
	if err != nil {
		t.Error(err)
	}
}

// killRecoveries runs the command recover, and kills it after growing times. The last recovery is complete.
func (w *world) killRecoveries(t *testing.T) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for limit := 10 * time.Millisecond; limit < 2*time.Second; limit = limit * 3 / 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		cmd := exec.CommandContext(ctx, path, "recover", "--run") // the end of the context kills it
		cmd.Env = w.environment()
		output, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			killed++
		} else if err != nil {
			t.Errorf("holdfast recover: %v: %s", err, output)
		}
		cancel()
	}
	if killed < 3 {
		t.Errorf("%d recoveries were killed", killed)
	}
	w.recover(t)
}

// The embedded broker has nothing to recover.
func TestNothingIsRecoveredOnAFile(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	if _, err := w.PlanRecovery(t.Context(), nil); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("the plan: %v", err)
	}
	if _, err := w.Recover(t.Context(), nil, nil); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("the recovery: %v", err)
	}
}
