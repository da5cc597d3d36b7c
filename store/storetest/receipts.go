package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var receiptTests = []test{
	{"are given after their grace", testReceiptsGrace},
	{"are gone once discharged", testDischarge},
	{"are given again until they were published", testReceiptsUnpublished},
	{"are reached behind those that nobody takes", testReceiptsReached},
	{"go to one caller at a time", testReceiptsExclusive},
	{"stay if publish panics", testReceiptsPanic},
	{"are given by lane", testReceiptsLanes},
}

// receipts publishes all receipts, with success or without.
func (s *suite) receipts(published bool) (given []store.Receipt, deleted int) {
	s.Helper()
	deleted, err := s.DispatchReceipts(s.ctx, store.Lanes{}, 100, func(_ context.Context, receipts []store.Receipt) []bool {
		given = receipts
		return all(published, len(receipts))
	})
	s.must(err)
	return given, deleted
}

func testReceiptsLanes(s *suite) {
	lanes := []string{"a", "b", "c"}
	for _, lane := range lanes {
		task := newTask()
		task.Lane = lane
		_, err := s.Insert(s.ctx, []holdfast.NewTask{task}, 0)
		s.must(err)
	}
	for _, test := range []struct {
		lanes store.Lanes
		want  []string
	}{
		{store.Lanes{Except: []string{"a", "b", "none"}}, []string{"c"}},
		{store.Lanes{Except: []string{"a", "b"}}, nil},
		{store.Lanes{Only: "b"}, []string{"b"}},
		{store.Lanes{Only: "none"}, nil},
		{store.Lanes{}, []string{"a"}},
	} {
		var given []string
		deleted, err := s.DispatchReceipts(s.ctx, test.lanes, 10, func(_ context.Context, receipts []store.Receipt) []bool {
			for _, r := range receipts {
				given = append(given, r.Lane)
			}
			return all(true, len(receipts))
		})
		s.must(err)
		if !slices.Equal(given, test.want) || deleted != len(test.want) {
			s.Errorf("%+v: given %v, want %v", test.lanes, given, test.want)
		}
	}
}

func (s *suite) insertReceipt(grace time.Duration) store.Receipt {
	s.Helper()
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask(), newTask()}, grace)
	s.must(err)
	return inserted.Receipts[0]
}

func testReceiptsGrace(s *suite) {
	s.insertReceipt(time.Hour)
	ripe := s.insertReceipt(0)
	given, deleted := s.receipts(true)
	if len(given) != 1 || deleted != 1 || given[0].ID != ripe.ID || given[0].Lane != ripe.Lane || !slices.Equal(given[0].Tickets, ripe.Tickets) {
		s.Errorf("given %+v, want %+v", given, ripe)
	}
	if given, deleted := s.receipts(true); len(given) > 0 || deleted > 0 {
		s.Errorf("given again: %v", given)
	}
	soon := s.insertReceipt(time.Millisecond)
	s.eventually("its grace is over", func() bool {
		given, _ := s.receipts(true)
		return len(given) == 1 && given[0].ID == soon.ID
	})
}

func testDischarge(s *suite) {
	receipt, kept := s.insertReceipt(0), s.insertReceipt(0)
	s.must(s.Discharge(s.ctx, []int64{receipt.ID, 1 << 60}))
	s.must(s.Discharge(s.ctx, []int64{receipt.ID}))
	s.must(s.Discharge(s.ctx, nil))
	if given, _ := s.receipts(true); len(given) != 1 || given[0].ID != kept.ID {
		s.Errorf("given %v", given)
	}
}

func testReceiptsUnpublished(s *suite) {
	s.insertReceipt(0)
	if given, deleted := s.receipts(false); len(given) != 1 || deleted != 0 {
		s.Errorf("given %v, deleted %d", given, deleted)
	}
	if given, _ := s.receipts(true); len(given) > 0 {
		s.Errorf("given again at once: %v", given)
	}
	s.eventually("given again", func() bool {
		given, deleted := s.receipts(true)
		return len(given) == 1 && deleted == 1
	})
}

func testReceiptsReached(s *suite) {
	blocked, want := s.insertReceipt(0), s.insertReceipt(0)
	var given []int64
	for range 2 {
		_, err := s.DispatchReceipts(s.ctx, store.Lanes{}, 1, func(_ context.Context, receipts []store.Receipt) []bool {
			given = append(given, receipts[0].ID)
			return []bool{receipts[0].ID != blocked.ID}
		})
		s.must(err)
	}
	if !slices.Equal(given, []int64{blocked.ID, want.ID}) {
		s.Errorf("given %v, want %d and %d", given, blocked.ID, want.ID)
	}
}

func testReceiptsExclusive(s *suite) {
	mine := s.insertReceipt(0)
	_, err := s.DispatchReceipts(s.ctx, store.Lanes{}, 1, func(_ context.Context, receipts []store.Receipt) []bool {
		theirs := s.insertReceipt(0)
		given, _ := s.receipts(true)
		if len(given) != 1 || given[0].ID != theirs.ID {
			s.Errorf("the other caller got %v", given)
		}
		s.must(s.Discharge(s.ctx, []int64{mine.ID})) // does not wait
		return all(true, len(receipts))
	})
	s.must(err)
	if given, _ := s.receipts(true); len(given) > 0 {
		s.Errorf("left are %v", given)
	}
}

func testReceiptsPanic(s *suite) {
	s.insertReceipt(0)
	func() {
		defer func() { _ = recover() }()
		_, _ = s.DispatchReceipts(s.ctx, store.Lanes{}, 1, func(context.Context, []store.Receipt) []bool { panic("publish") })
		s.Error("the panic was swallowed")
	}()
	if given, _ := s.receipts(true); len(given) != 1 {
		s.Errorf("given %v", given)
	}
}
