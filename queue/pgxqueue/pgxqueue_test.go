package pgxqueue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/pgxqueue"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a client with a private schema and prefix.
func open(t *testing.T) *queue.Client {
	t.Helper()
	amqp, schema := os.Getenv("AMQP_URL"), pgtest.Name(t)
	if amqp == "" {
		t.Skip("AMQP_URL is not set; run: make test")
	}
	environment := []string{
		"DATABASE_URL=" + pgtest.URL(t), "AMQP_URL=" + amqp, "HOLDFAST_DATABASE_SCHEMA=" + schema, "HOLDFAST_AMQP_PREFIX=test." + schema,
	}
	q, err := queue.Open(t.Context(), queue.Environment(environment), queue.Migrate(), queue.NoSignals(), queue.Logger(nil))
	must(t, err)
	cfg, err := configs.Load(configs.Options{Env: environment})
	must(t, err)
	t.Cleanup(func() {
		must(t, q.Close())
		b, err := app.Attach(context.Background(), cfg, nil)
		must(t, err)
		defer b.Close()
		must(t, b.Ping(context.Background(), slow.Patience()))
		must(t, b.Topology.Delete(context.Background(), b.Broker, []string{holdfast.DefaultQueue}))
	})
	return q
}

// pool opens a pool whose connections execute statements in the given mode.
func pool(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	must(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() {
		if !t.Failed() { // Close waits for the transactions that a failed test has left open
			p.Close()
		}
	})
	return p
}

// In every query mode of pgx, tasks exist if their transaction commits, and do not exist if it rolls back.
func TestTransactions(t *testing.T) {
	t.Parallel()
	q := open(t)
	raw := json.RawMessage(` { "a" : "<é>\"\\{},NULL" , "a":1.0 } `)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			p := pool(t, mode)
			for _, commit := range []bool{false, true} {
				tx, err := p.Begin(t.Context())
				must(t, err)
				first, err := pgxqueue.Tx(q, tx).Enqueue(t.Context(), "x", raw, queue.In(time.Hour), queue.MaxAttempts(7), queue.Tags("ada"))
				must(t, err)
				many, err := pgxqueue.Tx(q, tx).EnqueueMany(t.Context(), []queue.NewTask{
					{Type: "y", Payload: 1, Options: []queue.TaskOption{queue.Unique("k/" + mode.String())}},
					{Type: "y", Payload: 2, Options: []queue.TaskOption{queue.Unique("k/" + mode.String())}},
					{Type: "z"},
				})
				must(t, err)
				if !commit {
					must(t, tx.Rollback(t.Context()))
					if task, err := q.Task(t.Context(), first.ID); !errors.Is(err, holdfast.ErrNotFound) {
						t.Errorf("after the rollback: %+v, %v", task, err)
					}
					continue
				}
				must(t, tx.Commit(t.Context()))
				if many[0].Duplicate || !many[1].Duplicate || many[1].ID != many[0].ID || many[2].Duplicate {
					t.Errorf("the results are %+v", many)
				}
				task, err := q.Task(t.Context(), first.ID)
				if err != nil || task.MaxAttempts != 7 || string(task.Payload) != string(raw) || task.NextRunAt.Sub(task.CreatedAt) != time.Hour || !slices.Equal(task.Tags, []string{"ada"}) {
					t.Errorf("stored %+v, %v", task, err)
				}
			}
		})
	}
}

// A task that is stored in a transaction runs after the commit.
func TestTheTaskRuns(t *testing.T) {
	t.Parallel()
	q := open(t)
	must(t, queue.Handle(q, "x", func(context.Context, holdfast.Task, int) error { return nil }))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	tx, err := pool(t, pgx.QueryExecModeCacheStatement).Begin(t.Context())
	must(t, err)
	result, err := pgxqueue.Tx(q, tx).Enqueue(t.Context(), "x", 1)
	must(t, err)
	must(t, tx.Commit(t.Context()))
	limited, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	if task, err := q.Wait(limited, result.ID); err != nil || task.State != holdfast.Done {
		t.Errorf("%+v, %v", task, err)
	}
}

// In every query mode of pgx, a task is done if and only if the transaction of its handler commits, and its output and
// its next tasks exist then.
func TestASuccessCommitsWithTheTransaction(t *testing.T) {
	t.Parallel()
	q := open(t)
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	pools := make([]*pgxpool.Pool, len(modes))
	for i, mode := range modes {
		pools[i] = pool(t, mode)
	}
	type payment struct {
		Mode    int
		Commits bool
	}
	unique := func(p payment) queue.TaskOption { return queue.Unique(fmt.Sprintf("invoice/%d/%t", p.Mode, p.Commits)) }
	must(t, queue.Handle(q, "pay", func(ctx context.Context, _ holdfast.Task, p payment) error {
		tx, err := pools[p.Mode].Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		err = errors.Join(queue.Output(ctx, "<é>\"{}"), queue.Next(ctx, "invoice", p, unique(p), queue.In(time.Hour)))
		if err != nil {
			return err
		}
		if err := pgxqueue.CompleteTx(ctx, nil); !errors.Is(err, holdfast.ErrInvalid) {
			return fmt.Errorf("no transaction: %v", err)
		}
		if err := pgxqueue.CompleteTx(ctx, tx); err != nil {
			return err
		}
		if !p.Commits {
			return nil
		}
		return tx.Commit(ctx)
	}, queue.MaxAttempts(1)))
	must(t, queue.Handle(q, "invoice", func(context.Context, holdfast.Task, payment) error { return nil }))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	for i, mode := range modes {
		for _, commits := range []bool{false, true} {
			paid, err := q.Enqueue(t.Context(), "pay", payment{i, commits})
			must(t, err)
			limited, cancel := context.WithTimeout(t.Context(), slow.Patience())
			task, err := q.Wait(limited, paid.ID)
			cancel()
			must(t, err)
			output, err := queue.OutputOf[string](t.Context(), q, paid.ID)
			invoice, enqueueErr := q.Enqueue(t.Context(), "invoice", payment{}, unique(payment{i, commits}), queue.In(time.Hour))
			must(t, enqueueErr)
			if !commits {
				if task.State != holdfast.Dead || !errors.Is(err, holdfast.ErrNotFound) || invoice.Duplicate {
					t.Errorf("%s, without a commit: %s: %s, output %q, %v, next task stored: %v", mode, task.State, task.LastError, output, err, invoice.Duplicate)
				}
				continue
			}
			if task.State != holdfast.Done || err != nil || output != "<é>\"{}" || !invoice.Duplicate {
				t.Errorf("%s: %s: %s, output %q, %v, next task stored: %v", mode, task.State, task.LastError, output, err, invoice.Duplicate)
			}
		}
	}
	if err := pgxqueue.CompleteTx(t.Context(), nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("without an attempt: %v", err)
	}
}

// Errors wrap the same sentinels as with database/sql, and also the error of pgx.
func TestErrors(t *testing.T) {
	t.Parallel()
	q := open(t)
	if _, err := pgxqueue.Tx(q, nil).Enqueue(t.Context(), "x", nil); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("no transaction: %v", err)
	}
	p := pool(t, pgx.QueryExecModeCacheStatement)
	tx, err := p.Begin(t.Context())
	must(t, err)
	if _, err := tx.Exec(t.Context(), "select 1/0"); err == nil {
		t.Fatal("no error")
	}
	_, err = pgxqueue.Tx(q, tx).Enqueue(t.Context(), "x", nil)
	if failure, ok := errors.AsType[*pgconn.PgError](err); !ok || failure.Code != "25P02" {
		t.Errorf("a failed transaction: %v", err)
	}
	must(t, tx.Rollback(t.Context()))
	_, err = pgxqueue.Tx(q, tx).Enqueue(t.Context(), "x", nil)
	if !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("a closed transaction: %v", err)
	}

	tx, err = p.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "set local lock_timeout = '10ms'"); err != nil {
		t.Fatal(err)
	}
	other, err := p.Begin(t.Context())
	must(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	_, err = pgxqueue.Tx(q, other).Enqueue(t.Context(), "x", nil, queue.Unique("k"))
	must(t, err)
	if _, err := pgxqueue.Tx(q, tx).Enqueue(t.Context(), "x", nil, queue.Unique("k")); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("a unique key in an open transaction: %v", err)
	}
}

type Welcome struct{ Email string }

// signUp stores an account and its welcome task in one transaction.
func signUp(ctx context.Context, q *queue.Client, pool *pgxpool.Pool, email string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "create temporary table accounts (email text) on commit drop"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into accounts (email) values ($1)", email); err != nil {
			return err
		}
		_, err := pgxqueue.Tx(q, tx).Enqueue(ctx, "welcome", Welcome{email})
		return err
	})
}

// This program stores an account and its welcome task in one transaction. TestTheExample runs signUp on a private
// schema.
func ExampleTx() {
	ctx := context.Background()
	q, err := queue.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	fmt.Println(signUp(ctx, q, pool, "ada@example.com"))
}

func TestTheExample(t *testing.T) {
	t.Parallel()
	q := open(t)
	must(t, signUp(t.Context(), q, pool(t, pgx.QueryExecModeCacheStatement), "ada@example.com"))
	if task, err := q.Task(t.Context(), 1); err != nil || task.Type != "welcome" {
		t.Errorf("%+v, %v", task, err)
	}
}
