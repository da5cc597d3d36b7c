package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// scannerVariable makes the program of the tests a scanner, and has its settings.
const scannerVariable = "E2E_SCANNER"

// scanner are the settings of a program that scans the orders of zones.
type scanner struct {
	Number int
	Orders string   // URL of the orders
	Zones  []string // whose passes the program runs
	Map    map[string]string
}

// scan is what a handler has stored about one order.
type scan struct {
	Scanner int
	Zone    string
	Shards  []string // of the pass
	Order   int64
}

const (
	shardCount    = 12
	ordersPerPage = 10
)

// shardOf returns the shard of an order.
func shardOf(order int64) string { return strconv.FormatInt(order%shardCount, 10) }

// runScanner runs the program that the tests start and kill.
func runScanner(settings string) error {
	var s scanner
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		return err
	}
	q, err := queue.Open(context.Background(), queue.Logger(logrus.New()), queue.Queues(s.Zones...))
	if err != nil {
		return err
	}
	defer q.Close()
	if err := queue.HandleShards(q, "scan-orders", s.pass, queue.Timeout(time.Minute)); err != nil {
		return err
	}
	err = q.SetShardJob(context.Background(), queue.ShardJob{Name: "scan", Type: "scan-orders", MaxAttempts: 100, Zones: s.Map})
	if err != nil {
		return err
	}
	return q.Run(context.Background())
}

// pass scans the orders of a zone up to the last one.
func (s *scanner) pass(ctx context.Context, pass *queue.Pass) error {
	for offset := pass.Offset(); ; {
		var orders []int64
		if err := s.call(ctx, http.MethodGet, fmt.Sprint("/orders?after=", offset), nil, &orders); err != nil || len(orders) == 0 {
			return err
		}
		for _, order := range orders {
			if !pass.Owns(shardOf(order)) {
				continue
			}
			done := scan{Scanner: s.Number, Zone: pass.Zone, Shards: pass.Shards(), Order: order}
			if err := s.call(ctx, http.MethodPost, "/scans", done, nil); err != nil {
				return err
			}
		}
		offset = orders[len(orders)-1]
		if err := pass.Save(ctx, offset); err != nil {
			return err
		}
	}
}

func (s *scanner) call(ctx context.Context, method, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, s.Orders+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server of the orders answers %s", response.Status)
	}
	return json.NewDecoder(response.Body).Decode(&answer)
}

// orders is a server with orders from 1 to last, and what the scanners have stored about them.
type orders struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	last    int64
	scans   []scan
	changed chan struct{} // closed and replaced at each scan
}

// newOrders starts a server without orders, which ends with the test.
func newOrders(t *testing.T) *orders {
	t.Helper()
	o := &orders{t: t, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders", o.list)
	mux.HandleFunc("POST /scans", o.keep)
	o.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

func (o *orders) list(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.FormValue("after"), 10, 64)
	if err != nil {
		http.Error(w, "wrong query", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	last := min(o.last, after+ordersPerPage)
	o.mu.Unlock()
	page := []int64{}
	for order := after + 1; order <= last; order++ {
		page = append(page, order)
	}
	_ = json.NewEncoder(w).Encode(page) // a scanner that was killed reads nothing
}

func (o *orders) keep(w http.ResponseWriter, r *http.Request) {
	var done scan
	if err := json.NewDecoder(r.Body).Decode(&done); err != nil {
		http.Error(w, "wrong body", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	o.scans = append(o.scans, done)
	close(o.changed)
	o.changed = make(chan struct{})
	o.mu.Unlock()
	fmt.Fprint(w, "{}")
}

// add adds orders.
func (o *orders) add(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last += n
}

// await waits until a condition holds for the scans, and returns them.
func (o *orders) await(what string, condition func(scans []scan) bool) []scan {
	o.t.Helper()
	timer := time.NewTimer(slow.Patience())
	defer timer.Stop()
	for {
		o.mu.Lock()
		scans, changed := slices.Clip(o.scans), o.changed
		o.mu.Unlock()
		if condition(scans) {
			return scans
		}
		select {
		case <-changed:
		case <-timer.C:
			o.t.Fatalf("after %d scans: waited for %s", len(scans), what)
		}
	}
}

// awaitScanned waits until every order up to the given one is scanned.
func (o *orders) awaitScanned(upTo int64) []scan {
	o.t.Helper()
	scanned, seen := make(map[int64]bool), 0
	return o.await(fmt.Sprintf("%d scanned orders", upTo), func(scans []scan) bool {
		for ; seen < len(scans); seen++ {
			if order := scans[seen].Order; order <= upTo {
				scanned[order] = true
			}
		}
		return int64(len(scanned)) == upTo
	})
}

// Three zones of two programs each scan orders. Shards move, zones are drained, and programs that run a pass are killed
// with kill -9. Every order is scanned, only by zones that own its shard in the map of the pass, and the offsets reach
// the last order.
func TestShardsSurviveKills(t *testing.T) { onBothBackends(t, shardsSurviveKills) }

func shardsSurviveKills(t *testing.T, w *world) {
	w.lease = shortLease()
	rounds, perRound := slow.Pick(9, 60), int64(60)
	zones := []string{"berlin", "oslo", "rome"}
	s := &shardRun{t: t, world: w, orders: newOrders(t), zones: zones, owners: make(map[string]string), kills: make(map[int]func())}
	for i := range shardCount {
		s.owners[strconv.Itoa(i)] = zones[i%len(zones)]
	}
	if w.embedded {
		s.start(zones)
	} else {
		for i := range 2 * len(zones) {
			s.start(zones[i%len(zones) : i%len(zones)+1])
		}
	}
	began := time.Now()
	for round := range rounds {
		before := s.orders.last
		s.orders.add(perRound)
		switch round % 3 {
		case 0:
			s.orders.awaitScanned(before + perRound/4)
			s.move()
		case 1:
			s.orders.awaitScanned(before + perRound/4)
			s.drain()
		default:
			s.kill()
		}
	}
	scans := s.orders.awaitScanned(s.orders.last)
	s.awaitOffsets()
	took := time.Since(began)
	if _, _, err := w.DeleteShardJob(t.Context(), anna, "scan"); err != nil {
		t.Fatal(err)
	}
	var counts map[holdfast.State]int64
	poll(t, func() string { return fmt.Sprintf("the tasks of the deleted job are %v", counts) }, func(ctx context.Context) bool {
		found, err := w.Store.Count(ctx, store.Filter{})
		counts = found.By
		return err == nil && counts[holdfast.Ready]+counts[holdfast.Running] == 0
	})
	crashes, deferrals, tasks := 0, 0, w.tasks(t)
	for _, task := range tasks {
		crashes, deferrals = crashes+task.Crashes, deferrals+task.Deferrals
		if task.State != holdfast.Done {
			t.Errorf("task %+v", task)
		}
	}
	if crashes == 0 || deferrals == 0 {
		t.Errorf("%d passes crashed, and %d were deferred, so this test proves nothing", crashes, deferrals)
	}
	s.requireOwners(scans)
	entries, err := w.Store.AuditLog(t.Context(), store.AuditFilter{Subject: store.PlanSubject(store.ShardKind, "scan"), Limit: 1000})
	if err != nil || len(entries) != 1+s.changes+1 {
		t.Errorf("the audit log has %d entries, want the creation, %d changes and the end: %v", len(entries), s.changes, err)
	}
	t.Logf("%d orders were scanned %d times in %s in %d passes; the map changed %d times, %d programs were killed, %d passes were deferred",
		s.orders.last, len(scans), took.Round(100*time.Millisecond), len(tasks), s.changes, s.killed, deferrals)
}

// shardRun is a run of programs that scan orders.
type shardRun struct {
	*world
	t       *testing.T
	orders  *orders
	zones   []string
	owners  map[string]string // the first shard map
	history []map[string]string
	kills   map[int]func() // of the programs that run, by number
	started []scanner
	changes int
	killed  int
}

// start starts a program for the given zones.
func (s *shardRun) start(zones []string) {
	s.t.Helper()
	one := scanner{Number: len(s.started), Orders: s.orders.URL, Zones: zones, Map: s.owners}
	s.started = append(s.started, one)
	s.kills[one.Number] = s.startChild(s.t, scannerVariable, marshal(s.t, one)).kill
}

// changed records a change of the shard map.
func (s *shardRun) changed(before *app.ShardJob, after app.ShardJob, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	s.changes++
	s.history = append(s.history, before.Spec.Zones, after.Spec.Zones)
}

// shardMap returns the stored shard map.
func (s *shardRun) shardMap() map[string]string {
	s.t.Helper()
	job, err := s.ShardJob(s.t.Context(), "scan")
	if err != nil {
		s.t.Fatal(err)
	}
	return job.Spec.Zones
}

// move moves a shard to another zone, which is one without shards if there is one.
func (s *shardRun) move() {
	s.t.Helper()
	owners := s.shardMap()
	shard := strconv.Itoa(rand.IntN(shardCount))
	to := slices.DeleteFunc(slices.Clone(s.zones), func(zone string) bool { return zone == owners[shard] })
	for _, owner := range owners {
		if len(to) > 1 {
			to = slices.DeleteFunc(to, func(zone string) bool { return zone == owner })
		}
	}
	s.changed(s.MoveShard(s.t.Context(), anna, "scan", shard, to[0]))
}

// drain drains a zone that has shards.
func (s *shardRun) drain() {
	s.t.Helper()
	zone := s.shardMap()[strconv.Itoa(rand.IntN(shardCount))]
	s.changed(s.DrainZone(s.t.Context(), anna, "scan", zone))
}

// kill kills the program that stores the next scan, and starts another one for its zones.
func (s *shardRun) kill() {
	s.t.Helper()
	s.orders.mu.Lock()
	seen := len(s.orders.scans)
	s.orders.mu.Unlock()
	scans := s.orders.await("a scan before a kill", func(scans []scan) bool { return len(scans) > seen })
	victim := scans[len(scans)-1].Scanner
	s.kills[victim]()
	delete(s.kills, victim)
	s.killed++
	s.start(s.started[victim].Zones)
}

// awaitOffsets waits until the offset of each shard is the last order.
func (s *shardRun) awaitOffsets() {
	s.t.Helper()
	var offsets map[string]int64
	poll(s.t, func() string { return fmt.Sprintf("the offsets are %v, want %d", offsets, s.orders.last) }, func(ctx context.Context) bool {
		job, err := s.ShardJob(ctx, "scan")
		if err != nil {
			return false
		}
		if offsets, err = s.ShardOffsets(ctx, job); err != nil || len(offsets) != shardCount {
			return false
		}
		for _, offset := range offsets {
			if offset != s.orders.last {
				return false
			}
		}
		return true
	})
}

// requireOwners checks that the shards of each pass are those of its zone in one of the shard maps, and that they include
// the shard of the order.
func (s *shardRun) requireOwners(scans []scan) {
	s.t.Helper()
	sets := make(map[string]bool)
	key := func(zone string, shards []string) string { return zone + " " + strings.Join(shards, ",") }
	for _, owners := range append(s.history, s.owners) {
		for _, zone := range s.zones {
			var shards []string
			for shard, owner := range owners {
				if owner == zone {
					shards = append(shards, shard)
				}
			}
			slices.Sort(shards)
			sets[key(zone, shards)] = true
		}
	}
	for _, one := range scans {
		if !sets[key(one.Zone, one.Shards)] || !slices.Contains(one.Shards, shardOf(one.Order)) {
			s.t.Errorf("order %d of shard %s was scanned by zone %s with the shards %v", one.Order, shardOf(one.Order), one.Zone, one.Shards)
		}
	}
}
