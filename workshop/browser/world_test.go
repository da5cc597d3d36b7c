package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// tester is who prepares the tasks of a test.
var tester = store.Actor{Name: "tester", Surface: store.Library}

// world is a daemon over a file, with a worker, a janitor and the console.
type world struct {
	*testing.T
	*app.Backend
	url  string // of the console
	stop func() // ends the daemon; its second call does nothing

	mu      sync.Mutex
	handler func(context.Context, holdfast.Task) error
}

// newWorld starts a daemon with settings in addition to those of the tests. Its tasks fail for good, until the test
// calls handle.
func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	cfg, err := configs.Load(configs.Options{Env: append([]string{
		"DATABASE_URL=" + configs.EmbeddedDatabase + filepath.Join(t.TempDir(), "holdfast.db"), "AMQP_URL=" + configs.EmbeddedBroker,
		"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ROLES=worker,janitor,api,console", "HOLDFAST_WORKER_NAME=first", "HOLDFAST_WORKER_DRAIN_TIMEOUT=100ms", "HOLDFAST_WORKER_LEASE=" + slow.Times(5*time.Second).String(),
	}, settings...)})
	if err != nil {
		t.Fatal(err)
	}
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	w := &world{T: t}
	w.handle(func(context.Context, holdfast.Task) error {
		return holdfast.Permanent(errors.New("503 Service Unavailable from api.acme.example"))
	})
	if w.Backend, err = daemon.Open(t.Context(), cfg, silent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Backend.Close(); err != nil {
			t.Error(err)
		}
	})
	w.start()
	return w
}

// start starts the daemon. After stop, it listens on the same address again.
func (w *world) start() {
	w.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- daemon.Serve(ctx, daemon.Options{
			Backend: w.Backend, Version: "v1.0.0", Handlers: w.register, Listening: func(a net.Addr) { listening <- a },
			Hint: func(h holdfast.Hint) string { return string(h.Kind) },
		})
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(w.stop)
	select {
	case a := <-listening:
		w.Config.Listen, w.url = a.String(), "http://"+a.String()+w.Config.Console.Prefix
	case err := <-ended:
		ended <- err
		w.Fatalf("the daemon has ended: %v", err)
	}
}

// register adds the handlers of a worker.
func (w *world) register(r *consumer.Registry) {
	for _, name := range []string{"mail", "report", "resize"} {
		r.Add(name, consumer.HandlerFunc(w.run))
	}
}

func (w *world) run(ctx context.Context, task holdfast.Task) error {
	w.mu.Lock()
	handler := w.handler
	w.mu.Unlock()
	return handler(ctx, task)
}

// handle sets what the tasks do from now on.
func (w *world) handle(handler func(context.Context, holdfast.Task) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = handler
}

// succeed lets the tasks succeed from now on.
func (w *world) succeed() { w.handle(func(context.Context, holdfast.Task) error { return nil }) }

// enqueue stores tasks.
func (w *world) enqueue(tasks ...holdfast.NewTask) []holdfast.TaskID {
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

// await waits until tasks have a state.
func (w *world) await(state holdfast.State, ids ...holdfast.TaskID) {
	w.Helper()
	for _, id := range ids {
		w.eventually(fmt.Sprintf("task %s is %s", id, state), func() bool {
			task, err := w.Task(w.Context(), id)
			if err != nil {
				w.Fatal(err)
			}
			return task.State == state
		})
	}
}

// eventually calls holds until holds returns true. Only what the store knows needs it; for a page, see tab.wait.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
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

// awaitOperation waits until an operation has a state.
func (w *world) awaitOperation(id string, state store.OperationState) {
	w.Helper()
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		w.Fatal(err)
	}
	w.eventually("operation "+id+" is "+string(state), func() bool {
		o, err := w.Store.Operation(w.Context(), store.ID(n))
		if err != nil {
			w.Fatal(err)
		}
		return o.State == state
	})
}

// token creates a token and returns its secret.
func (w *world) token(name string, role store.TokenRole) string {
	w.Helper()
	secret, err := w.CreateToken(w.Context(), tester, name, role, 0)
	if err != nil {
		w.Fatal(err)
	}
	return secret
}

// call sends a request to the HTTP API and returns the body of the response. secret may be "".
func (w *world) call(secret, method, path, body string) string {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, "http://"+w.Config.Listen+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if secret != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		w.Fatalf("%s %s %s: %s %s %v", method, path, body, response.Status, text, err)
	}
	return string(text)
}
