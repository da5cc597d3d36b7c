package sqlite_test

import (
	"bytes"
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// A renewal is the next write of a process, however many writes wait.
func TestARenewalIsTheNextWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	openAt(t, path)
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, path)
		worker := registerWorker(t, s)
		release, err := s.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		var running []int64 // what each write reads, in the order of the writes
		for range 50 {
			group.Go(func() {
				if err := s.Write(t.Context(), func() { running = append(running, number(t, s, "select running from workers")) }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // the writes wait
		group.Go(func() {
			if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Minute, Running: 7}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		release()
		group.Wait()
		if len(running) != 50 || running[0] != 7 {
			t.Errorf("the writes read %v, so the renewal was not the first write", running)
		}
	})
}

// A worker keeps its lease while 100,000 writes of its process wait.
func TestAWorkerKeepsItsLeaseBesideManyWrites(t *testing.T) {
	t.Parallel()
	const size, renewals = 100_000, 20
	s := open(t)
	worker := registerWorker(t, s)
	release, err := s.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	var begun, written atomic.Int64
	for range size {
		group.Go(func() {
			begun.Add(1)
			_ = s.Write(ctx, func() { written.Add(1) })
		})
	}
	eventually(t, "all writes begin", func() bool { return begun.Load() == size })
	release()
	for range renewals {
		if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Minute}); err != nil {
			t.Error(err)
		}
	}
	meanwhile := written.Load()
	t.Logf("%d renewals during %d writes", renewals, meanwhile)
	if meanwhile > size/2 {
		t.Errorf("%d renewals waited for %d of %d writes", renewals, meanwhile, size)
	}
	cancel()
	group.Wait()
}

// eventually returns as soon as holds returns true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(slow.Patience())
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("timeout: %s", what)
		}
	}
}

// If a call of Fence has waited for another process, and a renewal waits behind it, Fence spares the worker.
func TestFenceSparesAWorkerWhoseRenewalWaits(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.SetBusyLimit(slow.Patience())
	worker := registerWorker(t, s)
	change(t, s, "update workers set lease_until = 1")
	tx, err := callersDB(t, s, "&_txlock=immediate").Begin()
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if fenced, err := s.Fence(t.Context(), time.Now().Add(time.Hour), 0, 0); err != nil || len(fenced) > 0 {
			t.Errorf("fenced %v, %v", fenced, err)
		}
	})
	eventually(t, "Fence waits", s.Busy)
	group.Go(func() {
		if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the renewal waits", func() bool { return s.Early() == 1 })
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	group.Wait()
	change(t, s, "update workers set lease_until = 1")
	if fenced, err := s.Fence(t.Context(), time.Now().Add(time.Hour), 0, 0); err != nil || len(fenced) != 1 || fenced[0] != worker {
		t.Errorf("without a renewal: fenced %v, %v", fenced, err)
	}
}

// If the owner of the file and another process wait to write, the owner is the next one. Then the other one is.
func TestTheOwnerWritesFirst(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no process takes precedence on this system")
	}
	owner := open(t)
	other := openAt(t, owner.Path())
	owner.SetBusyLimit(slow.Patience())
	other.SetBusyLimit(slow.Patience())
	release, err := owner.Own()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	db := callersDB(t, owner, "&_txlock=immediate")
	for range 20 {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		var order []string
		write := func(name string, s *sqlite.Store) {
			group.Go(func() {
				if err := s.Write(t.Context(), func() { order = append(order, name) }); err != nil {
					t.Error(err)
				}
			})
		}
		write("other", other)
		eventually(t, "the other process waits", other.Busy)
		write("owner", owner)
		eventually(t, "the owner takes precedence", other.Preceded)
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		group.Wait()
		if strings.Join(order, " ") != "owner other" {
			t.Fatalf("the order was %v", order)
		}
	}
	eventually(t, "the precedence ends", func() bool { return !other.Preceded() })
}

// A write that holds the file for more than a second is logged with its operation, and so is a wait for another process.
func TestALongWriteIsLogged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	openAt(t, path)
	synctest.Test(t, func(t *testing.T) {
		other := connect(t, path)
		var text bytes.Buffer
		log := logrus.New()
		log.SetOutput(&text)
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		hold := func(s *sqlite.Store, d time.Duration) {
			if err := s.Write(t.Context(), func() { time.Sleep(d) }); err != nil {
				t.Error(err)
			}
		}
		hold(s, 500*time.Millisecond)
		if text.Len() > 0 {
			t.Errorf("after a short write, the log has %s", &text)
		}
		hold(s, 2*time.Second)
		if !strings.Contains(text.String(), "operation=test") || !strings.Contains(text.String(), "this process held the file") {
			t.Errorf("after a long write, the log has %q", &text)
		}
		text.Reset()
		go hold(other, 2*time.Second)
		synctest.Wait() // the write of the other process sleeps
		if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3}}, 0); err != nil {
			t.Error(err)
		}
		if !strings.Contains(text.String(), `operation="insert tasks"`) || !strings.Contains(text.String(), "another process held the file") {
			t.Errorf("after a long wait, the log has %q", &text)
		}
	})
}
