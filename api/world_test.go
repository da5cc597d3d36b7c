package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// world is an API over a backend that no other test uses.
type world struct {
	*testing.T
	*app.Backend
	api *api.API
	url string
	log *logText // the log of the API
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// everywhere runs a test on servers and on a file.
func everywhere(t *testing.T, run func(w *world)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		run(newWorld(t, serverSettings(t), nil))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		run(newWorld(t, fileSettings(t), nil))
	})
}

func fileSettings(t *testing.T) []string {
	return []string{"DATABASE_URL=" + configs.EmbeddedDatabase + filepath.Join(t.TempDir(), "holdfast.db"), "AMQP_URL=" + configs.EmbeddedBroker}
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// serverSettings returns settings for the shared servers. It skips the test if they are not set.
func serverSettings(t *testing.T) []string {
	t.Helper()
	address := os.Getenv("AMQP_URL")
	if os.Getenv("DATABASE_URL") == "" || address == "" {
		t.Skip("DATABASE_URL and AMQP_URL are not set; run: make test")
	}
	database, schema := pgtest.SchemaReused(t)
	name := make([]byte, 5)
	_, _ = rand.Read(name)
	return []string{
		"DATABASE_URL=" + database, "AMQP_URL=" + address,
		"HOLDFAST_DATABASE_SCHEMA=" + schema, "HOLDFAST_AMQP_PREFIX=test.api_" + hex.EncodeToString(name),
	}
}

// newWorld opens a backend with the settings and serves its API. change, if not nil, changes the options.
func newWorld(t *testing.T, settings []string, change func(*api.Options)) *world {
	t.Helper()
	cfg, err := configs.Load(configs.Options{Env: append(settings, "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", "HOLDFAST_PRODUCER_MAX_PAYLOAD=100000")})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, log: new(logText)}
	log := logrus.New()
	log.SetOutput(io.Discard)
	if w.Backend, err = daemon.Open(t.Context(), cfg, log); err != nil {
		t.Fatal(err)
	}
	logged := logrus.New()
	logged.SetOutput(w.log)
	logged.SetLevel(logrus.TraceLevel)
	o := api.Options{
		Backend: w.Backend, Version: "test", Log: logged,
		Hint: func(h holdfast.Hint) string { return string(h.Kind) },
	}
	if change != nil {
		change(&o)
	}
	w.api = api.New(o)
	server := httptest.NewServer(w.api)
	w.url = server.URL
	if err := w.api.Bind(t.Context(), server.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := w.api.Close(); err != nil {
			t.Error(err)
		}
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

// response is a response of the API.
type response struct {
	status int
	header http.Header
	text   string
	json   any // the decoded body, if it is JSON
	t      *testing.T
}

// some, as a value for want, matches every value but null.
type some struct{}

// want reports an error unless the response has the status and the members: pairs of a path for at, and a value. label
// names the request.
func (r response) want(label string, status int, members ...any) {
	r.t.Helper()
	ok := r.status == status
	for i := 0; i < len(members); i += 2 {
		value, wanted := r.at(members[i].(string)), members[i+1]
		if n, is := wanted.(int); is {
			wanted = json.Number(strconv.Itoa(n))
		}
		ok = ok && (value == wanted || value != nil && wanted == some{})
	}
	if !ok {
		r.t.Errorf("%s: %d %s; want %d %v", label, r.status, r.text, status, members)
	}
}

// at returns the value at a path of keys and indexes, such as "tasks.0.id", and nil if there is none.
func (r response) at(path string) any {
	value := r.json
	for key := range strings.SplitSeq(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[key]
		case []any:
			i := 0
			if err := json.Unmarshal([]byte(key), &i); err != nil || i >= len(inner) {
				return nil
			}
			value = inner[i]
		default:
			return nil
		}
	}
	return value
}

// call sends a request. The headers are pairs of a name and a value.
func (w *world) call(method, path, text string, headers ...string) response {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(text))
	if err != nil {
		w.Fatal(err)
	}
	if text != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatal(err)
	}
	r := response{status: answer.StatusCode, header: answer.Header, text: string(body), t: w.T}
	if strings.Contains(answer.Header.Get("Content-Type"), "json") {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&r.json); err != nil {
			w.Fatalf("%s %s: %v in %q", method, path, err, body)
		}
	}
	return r
}

// get sends a request that must succeed.
func (w *world) get(path string) response {
	w.Helper()
	r := w.call("GET", path, "")
	if r.status != http.StatusOK {
		w.Fatalf("GET %s: %d %s", path, r.status, r.text)
	}
	return r
}

// enqueue stores tasks and returns their ids.
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

// runs claims a task of the type mail and stores values for its first attempt, which then still runs.
func (w *world) runs(id holdfast.TaskID, values ...store.Datum) {
	w.Helper()
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf("mail"), []message.Ticket{{Task: id, Attempt: 1}}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		w.Fatal(claims, err)
	}
	if err := w.Store.SaveData(w.Context(), store.Fence{Task: id, Attempt: 1, Worker: worker}, values); err != nil {
		w.Fatal(err)
	}
}

// dead stores a task whose only attempt has failed for good.
func (w *world) dead(task holdfast.NewTask) holdfast.TaskID {
	w.Helper()
	return w.deadUnder(holdfast.DefaultPolicy(), task)
}

// deadUnder is like dead, with the policy of the type.
func (w *world) deadUnder(policy holdfast.Policy, task holdfast.NewTask) holdfast.TaskID {
	w.Helper()
	id := w.enqueue(task)[0]
	worker, err := w.Store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 1}, time.Hour)
	if err != nil {
		w.Fatal(err)
	}
	claims, err := w.Store.Claim(w.Context(), worker, store.AnyOf(task.Type), []message.Ticket{{Task: id, Attempt: 1}}, store.IntoExecutors)
	if err != nil {
		w.Fatal(err)
	}
	if claims[0].Verdict != store.Claimed {
		w.Fatalf("claim: %+v", claims)
	}
	stored, err := w.Store.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	move, err := holdfast.Settle(stored, holdfast.Returned(holdfast.Permanent(errors.New("<b>no</b>"))), time.Now(), policy)
	if err != nil {
		w.Fatal(err)
	}
	if ok, err := w.Store.Apply(w.Context(), []holdfast.Transition{move}); err != nil || !ok[0] {
		w.Fatal(ok, err)
	}
	return id
}
