package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

func TestSmoke(t *testing.T) {
	began := time.Now()
	s := pgtest.Open(t)
	fmt.Println("open", time.Since(began))
	ctx := context.Background()
	in, err := s.Insert(ctx, []holdfast.NewTask{{Type: "a", Lane: "default", MaxAttempts: 3}, {Type: "a", Lane: "x", Delay: time.Hour}, {Type: "b", Lane: "x", Unique: "k"}, {Type: "b", Lane: "x", Unique: "k"}}, 0)
	fmt.Println(in, err)
	in, err = s.Insert(ctx, []holdfast.NewTask{{Type: "a", Lane: "default", MaxAttempts: 3, Payload: []byte(`{"a": "\"x\\"}`)}}, 0)
	fmt.Println(in, err)
	run, err := s.OpenRun(ctx, store.RunInfo{Name: "w"}, time.Second)
	fmt.Println(run, err)
	fmt.Println(s.Renew(ctx, store.Renewal{Run: run, Lease: time.Second}))
	c, err := s.Claim(ctx, run, []string{"a"}, []holdfast.Ticket{{Task: 1, Attempt: 1}, {Task: 2, Attempt: 1}, {Task: 3, Attempt: 1}, {Task: 5, Attempt: 1}, {Task: 77, Attempt: 1}})
	fmt.Println(c, err)
	m, _ := holdfast.Settle(c[0].Task, holdfast.Returned(nil), time.Now(), holdfast.DefaultPolicy())
	m2, err := holdfast.Settle(c[3].Task, holdfast.Returned(fmt.Errorf("oops")), time.Now(), holdfast.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(s.Apply(ctx, []holdfast.Transition{m, m2, m}))
	fmt.Println(s.List(ctx, store.Filter{}))
	fmt.Println(s.Count(ctx, store.Filter{}))
	fmt.Println(s.Lanes(ctx))
	fmt.Println(s.Attempts(ctx, 5))
	fmt.Println(s.DispatchDue(ctx, 10, nil))
	fmt.Println(s.DispatchReceipts(ctx, 10, func(_ context.Context, r []store.Receipt) []bool { fmt.Println(r); return make([]bool, len(r)) }))
	fmt.Println(s.Fence(ctx, 0, 0))
	fmt.Println(s.RunStates(ctx, []holdfast.RunID{run}))
	fmt.Println(s.Positions(ctx, []holdfast.Ticket{{Task: 1, Attempt: 1}}))
	fmt.Println(s.Abandoned(ctx, 0, 10))
	fmt.Println(s.TasksByID(ctx, []holdfast.TaskID{1, 2}))
	fmt.Println(s.Unticket(ctx, []holdfast.Ticket{{Task: 3, Attempt: 1}}))
	fmt.Println(s.UnticketLane(ctx, "x"))
	fmt.Println(s.UnticketLost(ctx, 0))
	fmt.Println(s.SentinelsDue(ctx, 0, time.Second))
	fmt.Println(s.Drained(ctx, holdfast.Sentinel{Lane: "x", At: time.Now()}))
	fmt.Println(s.Prune(ctx, store.PruneAges{Done: 1, Runs: 1}, 100))
	fmt.Println(s.Park(ctx, []holdfast.Ticket{{Task: 3, Attempt: 1}}, time.Hour, "why"))
	fmt.Println(s.Drain(ctx, run), s.CloseRun(ctx, run), s.Drain(ctx, 99))
	fmt.Println(s.Runs(ctx, true))
	fmt.Println(s.LaneNames(ctx))
	fmt.Println(s.CheckSchema(ctx))
	fmt.Println(s.MigrationStatus(ctx))
	fmt.Println(s.Incarnation(ctx))
	fmt.Println(s.MigrateDown(ctx))
	fmt.Println(s.CheckSchema(ctx))
	fmt.Println(s.Incarnation(ctx))
	fmt.Println(s.MigrateDown(ctx))
}
