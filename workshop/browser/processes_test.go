package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/rig"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// cluster is a world on PostgreSQL and RabbitMQ whose daemons are processes of their own.
type cluster struct {
	*world
	program     string // its path
	environment []string
}

// newCluster creates a world on the servers of the environment, and builds the program.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		missing(t, "DATABASE_URL and AMQP_URL are not set; run: make test-browser")
	}
	address, schema := pgtest.Schema(t)
	c := &cluster{world: &world{T: t}, program: filepath.Join(t.TempDir(), "holdfast"), environment: []string{
		"DATABASE_URL=" + address, "AMQP_URL=" + rabbittest.URL(t), "HOLDFAST_DATABASE_SCHEMA=" + schema, "HOLDFAST_AMQP_PREFIX=" + rabbittest.Prefix(),
		"HOLDFAST_WORKER_LEASE=" + slow.Times(5*time.Second).String(), "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8",
	}}
	build := exec.Command("go", "build", "-o", c.program, "./cmd/holdfast")
	build.Dir = filepath.Join("..", "..") // the module of the program
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build holdfast: %v\n%s", err, out)
	}
	cfg, err := configs.Load(configs.Options{Env: c.environment})
	if err != nil {
		t.Fatal(err)
	}
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	if c.Backend, err = app.Open(t.Context(), cfg, silent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), slow.Patience())
		defer cancel()
		queues, err := c.Store.QueueNames(ctx)
		if err == nil {
			err = c.Topology.Delete(ctx, c.Broker, queues)
		}
		if err != nil {
			t.Errorf("delete the queues: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Topology.Declare(t.Context(), c.Broker, []string{holdfast.DefaultQueue}); err != nil { // the first process has no janitor
		t.Fatal(err)
	}
	return c
}

// serve starts a process of holdfast serve with a name and with roles, and waits until it is ready. It returns the
// process and the URL of its endpoints.
func (c *cluster) serve(name, roles string) (p *rig.Process, url string) {
	c.Helper()
	p, err := rig.Serve(c.program, append([]string{"PATH=" + os.Getenv("PATH")}, c.environment...), "--name", name, "--roles", roles)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		p.Kill()
		if c.Failed() {
			c.Logf("the log of %s:\n%s", name, strings.Join(p.Log(60), "\n"))
		}
	})
	ctx, cancel := context.WithTimeout(c.Context(), slow.Patience())
	defer cancel()
	if url, err = p.Endpoints(ctx); err == nil {
		err = p.Ready(ctx)
	}
	if err != nil {
		c.Fatal(err)
	}
	return p, url
}

// receiver is a server of webhooks that answers no call before release is called.
type receiver struct {
	*httptest.Server
	begun   chan struct{} // receives a value for each call
	release func()
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	released, release := context.WithCancel(context.Background())
	r := &receiver{begun: make(chan struct{}, 100), release: release}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // only then does the server notice that its caller has gone away
		r.begun <- struct{}{}
		select {
		case <-released.Done():
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(func() {
		release()
		r.Close()
	})
	return r
}

// await waits until n more calls have begun.
func (r *receiver) await(t *testing.T, n int) {
	t.Helper()
	late := time.After(slow.Patience())
	for i := range n {
		select {
		case <-r.begun:
		case <-late:
			t.Fatalf("only %d of %d calls have begun", i, n)
		}
	}
}

// A worker process is killed with SIGKILL. Its page and the pages of its tasks show, without a reload, that its tasks
// move to another worker, which completes them.
//
// The test runs only on servers: on a file, one process has all workers and the console, so none is left to watch.
func TestTasksMove(t *testing.T) {
	t.Parallel()
	needChromium(t)
	c, target := newCluster(t), newReceiver(t)
	victim, _ := c.serve("first", "worker")
	payload, err := json.Marshal(map[string]string{"url": target.URL})
	if err != nil {
		t.Fatal(err)
	}
	ids := c.enqueue(holdfast.NewTask{Type: "http", Payload: payload}, holdfast.NewTask{Type: "http", Payload: payload}, holdfast.NewTask{Type: "http", Payload: payload})
	target.await(t, len(ids))
	_, c.url = c.serve("second", "worker,janitor,console") // it finds no task that waits

	workers, err := c.Store.Workers(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	pages := make(map[string]string) // of the workers
	for _, w := range workers {
		pages[w.Name] = "/workers/" + w.ID.String()
	}
	from, to, list, task := open(t, c.url), open(t, c.url), open(t, c.url), open(t, c.url)
	for b, path := range map[*tab]string{from: pages["first"], to: pages["second"], list: "/workers", task: "/tasks/" + ids[0].String()} {
		b.visit(path)
		b.wait(has("#live", "live"))
		b.eval(`window.same = true`)
	}
	from.holds(has("h1", "live"))
	for _, id := range ids {
		from.holds(has("#t"+id.String(), "running"))
	}
	to.holds(has("#content", "It holds no task"))
	task.holds(has("h1", "running"))
	row := "#w" + strings.TrimPrefix(pages["first"], "/workers/")
	list.holds(has(row, "first"))

	victim.Kill()
	from.wait(`!(` + has("h1", "live") + `)`)
	from.wait(has("#content", "It holds no task"))
	list.wait(`document.querySelector(` + quote(row) + `).classList.contains("gone")`)
	target.await(t, len(ids)) // the calls of the other worker
	// The first rows come with their table. Each later one waits behind the pill.
	to.wait(fmt.Sprintf(`document.querySelectorAll("#content tr[id^=t]").length + (document.getElementById("pill").hidden ? 0 : parseInt(document.getElementById("pill").innerText)) === %d`, len(ids)))
	task.wait(has(".attempts", "first"))
	task.holds(has("h1", "running"))
	target.release()
	task.wait(has("h1", "done"))
	task.holds(has(".attempts", "second"))
	to.wait(has("#content", "It holds no task"))
	for _, b := range []*tab{from, to, list, task} {
		b.holds(`window.same`)
	}
	c.await(holdfast.Done, ids...)
}
