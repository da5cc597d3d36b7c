package storetest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var outboxTests = []test{
	{"publishes entries after their grace", testEntriesGrace},
	{"deletes entries", testDeleteOutbox},
	{"finds committed entries until their grace ends", testCommittedOutbox},
	{"passes an entry to the publish function again until it is published", testEntriesUnpublished},
	{"reaches entries behind refused ones", testEntriesReached},
	{"passes an entry to one caller at a time", testEntriesExclusive},
	{"keeps entries if publish panics", testEntriesPanic},
	{"selects entries by queue", testEntriesQueues},
}

// dispatchEntries calls DispatchOutbox with a publish function that returns published for all entries.
func (s *suite) dispatchEntries(published bool) (given []store.OutboxEntry, deleted int) {
	s.Helper()
	deleted, err := s.DispatchOutbox(s.ctx, store.Queues{}, 100, func(_ context.Context, entries []store.OutboxEntry) []bool {
		given = entries
		return repeated(published, len(entries))
	})
	s.must(err)
	return given, deleted
}

func testEntriesQueues(s *suite) {
	queues := []string{"a", "b", "c"}
	for _, queue := range queues {
		task := newTask()
		task.Queue = queue
		_, err := s.Insert(s.ctx, []holdfast.NewTask{task}, 0)
		s.must(err)
	}
	for _, test := range []struct {
		queues store.Queues
		want   []string
	}{
		{store.Queues{Except: []string{"a", "b", "none"}}, []string{"c"}},
		{store.Queues{Except: []string{"a", "b"}}, nil},
		{store.Queues{Only: "b"}, []string{"b"}},
		{store.Queues{Only: "none"}, nil},
		{store.Queues{}, []string{"a"}},
	} {
		var given []string
		deleted, err := s.DispatchOutbox(s.ctx, test.queues, 10, func(_ context.Context, entries []store.OutboxEntry) []bool {
			for _, entry := range entries {
				given = append(given, entry.Queue)
			}
			return repeated(true, len(entries))
		})
		s.must(err)
		if !slices.Equal(given, test.want) || deleted != len(test.want) {
			s.Errorf("%+v: published %v, want %v", test.queues, given, test.want)
		}
	}
}

// insertEntry stores two tasks and returns their outbox entry.
func (s *suite) insertEntry(grace time.Duration) store.OutboxEntry {
	s.Helper()
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask(), newTask()}, grace)
	s.must(err)
	return inserted.Entries[0]
}

func testEntriesGrace(s *suite) {
	s.insertEntry(time.Hour)
	old := s.insertEntry(0)
	given, deleted := s.dispatchEntries(true)
	if len(given) != 1 || deleted != 1 || given[0].ID != old.ID || given[0].Queue != old.Queue || !slices.Equal(given[0].Tickets, old.Tickets) {
		s.Errorf("published %+v, want %+v", given, old)
	}
	if given, deleted := s.dispatchEntries(true); len(given) > 0 || deleted > 0 {
		s.Errorf("published again: %v", given)
	}
	soon := s.insertEntry(time.Millisecond)
	s.eventually("the entry is older than its grace", func() bool {
		given, _ := s.dispatchEntries(true)
		return len(given) == 1 && given[0].ID == soon.ID
	})
}

func testDeleteOutbox(s *suite) {
	entry, kept := s.insertEntry(0), s.insertEntry(0)
	s.must(s.DeleteOutbox(s.ctx, []int64{entry.ID, 1 << 60}))
	s.must(s.DeleteOutbox(s.ctx, []int64{entry.ID}))
	s.must(s.DeleteOutbox(s.ctx, nil))
	if given, _ := s.dispatchEntries(true); len(given) != 1 || given[0].ID != kept.ID {
		s.Errorf("published %v, want only the entry %d", given, kept.ID)
	}
}

func testCommittedOutbox(s *suite) {
	committed := func(entries ...int64) []store.OutboxEntry {
		s.Helper()
		found, err := s.CommittedOutbox(s.ctx, entries)
		s.must(err)
		slices.SortFunc(found, func(a, b store.OutboxEntry) int { return cmp.Compare(a.ID, b.ID) })
		return found
	}
	first, other, second, ripe := s.insertEntry(time.Hour), s.insertEntry(time.Hour), s.insertEntry(time.Hour), s.insertEntry(0)
	const never = 1 << 60 // like the entry of a transaction that is open or was rolled back
	asked := []int64{second.ID, never, ripe.ID, first.ID}
	if found := committed(asked...); !reflect.DeepEqual(found, []store.OutboxEntry{first, second}) {
		s.Errorf("found %v of %v, want %v and %v", found, asked, first, second)
	}
	if found := committed(); len(found) > 0 {
		s.Errorf("found %v of no entries", found)
	}
	s.must(s.DeleteOutbox(s.ctx, []int64{first.ID}))
	if found := committed(first.ID, other.ID); !reflect.DeepEqual(found, []store.OutboxEntry{other}) {
		s.Errorf("found %v, want only %v: the entry %d is deleted", found, other, first.ID)
	}
	soon := s.insertEntry(50 * time.Millisecond)
	s.eventually("the entry is older than its grace", func() bool { return len(committed(soon.ID)) == 0 })
	if given, _ := s.dispatchEntries(false); !slices.ContainsFunc(given, func(e store.OutboxEntry) bool { return e.ID == soon.ID }) {
		s.Errorf("the entry %d is neither a producer's nor a janitor's", soon.ID)
	}
}

func testEntriesUnpublished(s *suite) {
	s.insertEntry(0)
	began := s.now()
	if given, deleted := s.dispatchEntries(false); len(given) != 1 || deleted != 0 {
		s.Errorf("published %v, deleted %d; want one and none", given, deleted)
	}
	if given, _ := s.dispatchEntries(true); s.now().Sub(began) > atOnce {
		s.Log("the calls took too long for a result")
		return
	} else if len(given) > 0 {
		s.Errorf("passed to the publish function again at once: %v", given)
	}
	s.eventually("the entry is published", func() bool {
		given, deleted := s.dispatchEntries(true)
		return len(given) == 1 && deleted == 1
	})
}

func testEntriesReached(s *suite) {
	blocked, want := s.insertEntry(0), s.insertEntry(0)
	var given []int64
	for range 2 {
		_, err := s.DispatchOutbox(s.ctx, store.Queues{}, 1, func(_ context.Context, entries []store.OutboxEntry) []bool {
			given = append(given, entries[0].ID)
			return []bool{entries[0].ID != blocked.ID}
		})
		s.must(err)
	}
	if !slices.Equal(given, []int64{blocked.ID, want.ID}) {
		s.Errorf("published %v, want %d and %d", given, blocked.ID, want.ID)
	}
}

func testEntriesExclusive(s *suite) {
	mine := s.insertEntry(0)
	_, err := s.DispatchOutbox(s.ctx, store.Queues{}, 1, func(_ context.Context, entries []store.OutboxEntry) []bool {
		theirs := s.insertEntry(0)
		given, _ := s.dispatchEntries(true)
		if len(given) != 1 || given[0].ID != theirs.ID {
			s.Errorf("the other caller got %v", given)
		}
		s.must(s.DeleteOutbox(s.ctx, []int64{mine.ID})) // this call does not wait for the dispatch
		return repeated(true, len(entries))
	})
	s.must(err)
	if given, _ := s.dispatchEntries(true); len(given) > 0 {
		s.Errorf("entries left: %v", given)
	}
}

func testEntriesPanic(s *suite) {
	s.insertEntry(0)
	func() {
		defer func() { _ = recover() }()
		_, _ = s.DispatchOutbox(s.ctx, store.Queues{}, 1, func(context.Context, []store.OutboxEntry) []bool { panic("publish") })
		s.Error("DispatchOutbox returned although publish panicked")
	}()
	if given, _ := s.dispatchEntries(true); len(given) != 1 {
		s.Errorf("published %v, want one entry", given)
	}
}
