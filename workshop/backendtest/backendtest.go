// Package backendtest opens backends for the tests of surfaces, on a file and on servers, and stores tasks in them.
package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// World is a backend that no other test uses.
type World struct {
	*testing.T
	*app.Backend
}

// Everywhere runs a test on servers and on a file, with the settings for Open.
func Everywhere(t *testing.T, run func(t *testing.T, settings []string)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		run(t, ServerSettings(t))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		run(t, FileSettings(t))
	})
}

// FileSettings returns settings for a file of its own.
func FileSettings(t *testing.T) []string {
	return []string{"DATABASE_URL=" + configs.EmbeddedDatabase + NewFile(t), "AMQP_URL=" + configs.EmbeddedBroker}
}

// ServerSettings returns settings for the shared servers. It skips the test if they are not set. The package of the test
// must have a TestMain that calls pgtest.Main.
func ServerSettings(t *testing.T) []string {
	t.Helper()
	address := os.Getenv("AMQP_URL")
	if os.Getenv("DATABASE_URL") == "" || address == "" {
		t.Skip("DATABASE_URL and AMQP_URL are not set; run: make test")
	}
	database, schema := pgtest.SchemaReused(t)
	return []string{
		"DATABASE_URL=" + database, "AMQP_URL=" + address,
		"HOLDFAST_DATABASE_SCHEMA=" + schema, "HOLDFAST_AMQP_PREFIX=test.surface_" + strings.ToLower(rand.Text()[:10]),
	}
}

// Open opens a backend with the settings, and closes it at the end of the test.
func Open(t *testing.T, settings []string) *World {
	t.Helper()
	cfg, err := configs.Load(configs.Options{Env: append(settings, "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", "HOLDFAST_PRODUCER_MAX_PAYLOAD=100000")})
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	w := &World{T: t}
	if w.Backend, err = daemon.Open(t.Context(), cfg, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slow.Times(20*time.Second))
		defer cancel()
		if queues, err := w.Store.QueueNames(ctx); err == nil {
			_ = w.Topology.Delete(ctx, w.Broker, queues)
		}
		if err := w.Backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Enqueue stores tasks and returns their ids.
func (w *World) Enqueue(tasks ...holdfast.NewTask) []holdfast.TaskID {
	w.Helper()
	p := w.Producer(nil)
	defer p.Close()
	results, err := p.EnqueueMany(w.Context(), tasks)
	if err != nil {
		w.Fatal(err)
	}
	ids := make([]holdfast.TaskID, len(results))
	for i, r := range results {
		ids[i] = r.ID
	}
	return ids
}

// Claim claims the first attempt of a stored task, for a worker of its own.
func (w *World) Claim(id holdfast.TaskID) (holdfast.Task, holdfast.WorkerID) {
	w.Helper()
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	stored, err := w.Store.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf(stored.Type), []message.Ticket{{Task: id, Attempt: 1}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		w.Fatal(claims, err)
	}
	if stored, err = w.Store.Task(w.Context(), id); err != nil {
		w.Fatal(err)
	}
	return stored, worker
}

// Runs claims a task and stores values for its first attempt, which then still runs.
func (w *World) Runs(id holdfast.TaskID, values ...store.Datum) holdfast.Task {
	w.Helper()
	stored, worker := w.Claim(id)
	if len(values) > 0 {
		if err := w.Store.SaveData(w.Context(), store.Fence{Task: id, Attempt: 1, Worker: worker}, values); err != nil {
			w.Fatal(err)
		}
	}
	return stored
}

// Settle claims a task and stores values for its first attempt, which then ends.
func (w *World) Settle(id holdfast.TaskID, cause holdfast.Cause, policy holdfast.Policy, values ...store.Datum) {
	w.Helper()
	move, err := holdfast.Settle(w.Runs(id, values...), cause, time.Now(), policy)
	if err != nil {
		w.Fatal(err)
	}
	if ok, err := w.Store.Apply(w.Context(), []holdfast.Transition{move}); err != nil || !ok[0] {
		w.Fatal(ok, err)
	}
}

// Dead stores a task whose only attempt has failed for good.
func (w *World) Dead(task holdfast.NewTask) holdfast.TaskID {
	w.Helper()
	return w.DeadUnder(holdfast.DefaultPolicy(), task)
}

// DeadUnder is like Dead, with the policy of the type.
func (w *World) DeadUnder(policy holdfast.Policy, task holdfast.NewTask) holdfast.TaskID {
	w.Helper()
	id := w.Enqueue(task)[0]
	w.Settle(id, holdfast.Returned(holdfast.Permanent(errors.New("<b>no</b>"))), policy)
	return id
}

// Eventually calls holds until holds returns true.
func (w *World) Eventually(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(slow.Patience())
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			w.Fatalf("timeout while waiting: %s", what)
		}
	}
}
