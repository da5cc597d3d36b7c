package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// recorderVariable makes the program of the tests a recorder, and has the path of its file.
const recorderVariable = "E2E_RECORDER"

// link is the payload of an ordered task: the task with this number, from 1, of a key, from 0.
type link struct{ Key, Number int }

// failsOnce reports whether the first attempt of the task fails.
func (l link) failsOnce() bool { return (l.Key+l.Number)%10 == 0 }

// A recorder appends a record to its file when an attempt begins, and one when it ends. All recorders of a test share
// the file, so the order of the records is the order of these events. All records have the same size, which divides the
// size of a page. So a kill leaves no part of a record.
const (
	recordSize   = 16
	recordFormat = "%c %8d %4d\n" // the event, the key and the number
)

// The events of a record.
const (
	eventBegin  = 'b'
	eventFailed = 'f'
	eventEnd    = 'e'
)

// runRecorder runs the program that the tests start and kill.
func runRecorder(path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	q, err := queue.Open(context.Background(), queue.Logger(logrus.New()))
	if err != nil {
		return err
	}
	defer q.Close()
	err = queue.Handle(q, "ordered", func(_ context.Context, task holdfast.Task, l link) error {
		record := func(event rune) error {
			_, err := fmt.Fprintf(file, recordFormat, event, l.Key, l.Number)
			return err
		}
		if err := record(eventBegin); err != nil {
			return err
		}
		<-time.After(time.Millisecond) // so that attempts run when the program is killed
		if task.Attempt == 1 && l.failsOnce() {
			return errors.Join(errors.New("the first attempt fails"), record(eventFailed))
		}
		return record(eventEnd)
	})
	if err != nil {
		return err
	}
	return q.Run(context.Background())
}

var orderKeys = flag.Int("order.keys", 0, "number of keys for TestOrderSurvivesKills, each with ten tasks; 0 means few")

// Ordered tasks of each key run one after the other, although attempts fail and workers are killed with kill -9 three
// times. No task starts before the one before has ended for good: that one does not start again later. In the end, every
// task is done. An attempt is repeated only if the killed worker had the task.
func TestOrderSurvivesKills(t *testing.T) { onServersFirst(t, orderSurvivesKills) }

func orderSurvivesKills(t *testing.T, w *world) {
	w.lease = shortLease()
	keys, each := slow.Pick(15, 1_000), slow.Pick(8, 10)
	if *orderKeys > 0 {
		keys, each = *orderKeys, 10
	}
	r := &orderRun{world: w, t: t, keys: keys, each: each, file: filepath.Join(t.TempDir(), "records")}
	processes := 2
	if w.embedded {
		processes = 1 // a file has one serving process
	}
	for range processes {
		r.recorders = append(r.recorders, w.startChild(t, recorderVariable, r.file))
	}
	stored := make(chan error, 1)
	go func() { stored <- r.enqueue() }()
	const kills = 3
	for kill := range kills {
		r.await(2 * keys * each * (kill + 1) / (kills + 1))
		r.restart(kill % processes)
	}
	r.await(2 * keys * each)
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	w.awaitCount(t, holdfast.Done, int64(keys*each))
	for _, recorder := range r.recorders {
		recorder.kill()
	}
	r.check(kills)
}

// orderRun is a run of ordered tasks and the programs that run them.
type orderRun struct {
	*world
	t          *testing.T
	keys, each int
	file       string // has the records
	recorders  []*child
	held       int64 // tasks that the killed workers ran or had buffered
}

// enqueue stores half of the tasks of each key, one key after the other, and then the other half. So most tasks wait,
// and keys that have become idle get further tasks.
func (r *orderRun) enqueue() error {
	p := r.Producer(nil)
	defer p.Close()
	var tasks []holdfast.NewTask
	for _, numbers := range [][2]int{{1, r.each / 2}, {r.each/2 + 1, r.each}} {
		for key := range r.keys {
			for number := numbers[0]; number <= numbers[1]; number++ {
				payload, err := json.Marshal(link{Key: key, Number: number})
				if err != nil {
					return err
				}
				tasks = append(tasks, holdfast.NewTask{Type: "ordered", Key: fmt.Sprint("key ", key), Ordered: true, Payload: payload})
			}
		}
	}
	for part := range slices.Chunk(tasks, 1000) {
		_, err := p.EnqueueMany(r.t.Context(), part)
		for errors.As(err, new(*store.KeyHeldError)) { // by a process that is stopped; none of the tasks is stored
			_, err = p.EnqueueMany(r.t.Context(), part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until the file has n records.
func (r *orderRun) await(n int) {
	r.t.Helper()
	records := int64(0)
	limit := slow.Patience() + slow.Times(time.Duration(n)*time.Millisecond)
	pollFor(r.t, limit, func() string { return fmt.Sprintf("the file has %d of %d records", records, n) }, func(context.Context) bool {
		if info, err := os.Stat(r.file); err == nil {
			records = info.Size() / recordSize
		}
		return records >= int64(n)
	})
}

// restart kills a recorder and starts another one. It counts the tasks of the killed worker while the process is
// stopped, because a janitor takes them back soon after the kill.
func (r *orderRun) restart(number int) {
	r.t.Helper()
	victim := r.recorders[number]
	var worker holdfast.WorkerID
	poll(r.t, func() string { return "the recorder has not registered a worker" }, func(ctx context.Context) bool {
		workers, err := r.Store.Workers(ctx, false)
		for _, one := range workers {
			if one.PID == victim.cmd.Process.Pid {
				worker = one.ID
			}
		}
		return err == nil && worker != 0
	})
	_ = victim.cmd.Process.Signal(syscall.SIGSTOP) // kill reports a process that had ended before
	awaitStopped(r.t, victim.cmd.Process.Pid)
	r.held += r.claimed(worker)
	victim.kill()
	r.recorders[number] = r.startChild(r.t, recorderVariable, r.file)
}

// claimed returns the number of tasks that the worker runs or has buffered. It reads the table, because in a large store
// Store.Count returns what the worker reported with its latest renewal.
func (r *orderRun) claimed(worker holdfast.WorkerID) (n int64) {
	r.t.Helper()
	driver, source, schema := "postgres", r.databaseURL, r.schema+"."
	if path, embedded := r.Embedded(); embedded {
		driver, source, schema = "sqlite", path+"?_pragma=busy_timeout(20000)", ""
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	query := "select count(*) from " + schema + "tasks where state = 'running' and worker_id = $1"
	if err := db.QueryRowContext(r.t.Context(), query, int64(worker)).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// check checks the records of all attempts.
func (r *orderRun) check(kills int) {
	r.t.Helper()
	records, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(records)%recordSize != 0 {
		r.t.Fatalf("the file has %d bytes", len(records))
	}
	chains := make([]chain, r.keys)
	for i := range chains {
		chains[i].last = eventEnd
	}
	attempts, repeats, inversions := 0, 0, 0
	for record := range slices.Chunk(records, recordSize) {
		var event rune
		var l link
		if _, err := fmt.Sscanf(string(record), recordFormat, &event, &l.Key, &l.Number); err != nil || l.Key < 0 || l.Key >= r.keys {
			r.t.Fatalf("record %q: %v", record, err)
		}
		if event == eventBegin {
			attempts++
		}
		before := chains[l.Key]
		switch chains[l.Key].add(event, l.Number) {
		case repeated:
			repeats++
		case inverted:
			if inversions++; inversions <= 10 {
				r.t.Errorf("record %q comes after %c of task %d", record, before.last, before.number)
			}
		}
	}
	for key, c := range chains {
		if c.number != r.each || c.last != eventEnd {
			r.t.Errorf("the last record of key %d is %c of task %d", key, c.last, c.number)
			break // other keys have the same problem
		}
	}
	if int64(repeats) > r.held {
		r.t.Errorf("%d attempts were repeated, and only %d tasks were claimed at the kills", repeats, r.held)
	}
	r.t.Logf("%d keys, %d tasks, %d attempts, %d kills: %d tasks were claimed at the kills, %d attempts were repeated, %d inversions",
		r.keys, r.keys*r.each, attempts, kills, r.held, repeats, inversions)
}

// chain is what the records say of a key so far.
type chain struct {
	number int  // of the latest task that has begun
	last   rune // its latest event
	failed bool // the task has failed before
}

// step is what a record means.
type step int

const (
	expected step = iota
	repeated      // the attempt before has left no result, because its worker was killed
	inverted      // the record is not in the order of the key
)

func (c *chain) add(event rune, number int) step {
	before := *c
	switch {
	case event == eventBegin && number == c.number+1 && c.last == eventEnd:
		*c = chain{number: number, last: eventBegin}
		return expected
	case number != c.number, event != eventBegin && c.last != eventBegin:
		return inverted
	}
	c.last, c.failed = event, c.failed || event == eventFailed
	// A task fails once. If it fails again, the result of its first attempt was lost.
	if event == eventBegin && before.last != eventFailed || event == eventFailed && before.failed {
		return repeated
	}
	return expected
}
