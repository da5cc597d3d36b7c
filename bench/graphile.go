package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const graphileSchema = "bench_graphile"

// graphileModule is the name of graphile-worker in the npm registry.
const graphileModule = "graphile-worker"

// graphileFolder is the variable that names the folder of bench/graphile with its packages installed.
const graphileFolder = "BENCH_GRAPHILE"

// graphileSystem runs its worker in a process of Node.js. That process reports its handlers to this one, which stores
// the tasks with the SQL functions of graphile-worker.
var graphileSystem = system{
	name: "graphile-worker", module: graphileModule, servers: []string{databaseURL, graphileFolder},
	settings: "A worker in one process of Node.js: concurrency 100, a local queue of 1,000 jobs, completions in batches every 5 ms, poll " +
		"interval 10 ms. Tasks are stored from Go over 20 connections, with the SQL functions add_jobs and add_job. A finished job is " +
		"deleted. The worker reports its handlers through a pipe, and the pick-up time includes that.",
	schema: graphileSchema,
	reset: func(ctx context.Context) error {
		if err := execute(ctx, "drop schema if exists "+graphileSchema+" cascade"); err != nil {
			return err
		}
		cmd, err := graphile(ctx, "migrate", concurrency)
		if err != nil {
			return err
		}
		cmd.Stdout = os.Stderr
		return cmd.Run()
	},
	open: func(ctx context.Context, executors int) (queue, error) {
		pool, err := pool(ctx, graphileSchema, databaseConnections)
		if err != nil {
			return nil, err
		}
		q := &graphileQueue{pool: pool}
		if err := q.start(ctx, executors); err != nil {
			pool.Close()
			return nil, err
		}
		return q, nil
	},
	analyze: func(ctx context.Context) error {
		return execute(ctx, "vacuum analyze "+graphileSchema+"._private_jobs")
	},
}

// graphile returns an exec.Cmd that runs a command of worker.mjs.
func graphile(ctx context.Context, command string, executors int) (*exec.Cmd, error) {
	settings, err := json.Marshal(map[string]any{
		"connectionString": os.Getenv(databaseURL), "schema": graphileSchema, "maxPoolSize": executors, // it opens far fewer, but warns about a smaller maximum
		"concurrentJobs": executors, "localQueue": map[string]any{"size": 1000}, "completeJobBatchDelay": 5, "failJobBatchDelay": 5,
		"pollInterval": 10, // the default is 2 s
	})
	if err != nil {
		return nil, err
	}
	folder := os.Getenv(graphileFolder)
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "node_modules", ".bin", "node"), "worker.mjs", command, string(settings))
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	cmd.Env = append(os.Environ(), "NODE_ENV=production")
	return cmd, nil
}

type graphileQueue struct {
	pool *pgxpool.Pool
	node *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// start starts the process. The process runs no task until Work is called.
func (q *graphileQueue) start(ctx context.Context, executors int) (err error) {
	if q.node, err = graphile(ctx, "work", executors); err != nil {
		return err
	}
	if q.in, err = q.node.StdinPipe(); err != nil {
		return err
	}
	out, err := q.node.StdoutPipe()
	if err != nil {
		return err
	}
	q.out = bufio.NewReaderSize(out, 64<<10)
	if err := q.node.Start(); err != nil {
		return err
	}
	return relay(q.out, "ready", nil)
}

func (q *graphileQueue) Close() error {
	q.pool.Close()
	return errors.Join(q.in.Close(), q.node.Wait())
}

// pid implements externalWorker.
func (q *graphileQueue) pid() int { return q.node.Process.Pid }

func (q *graphileQueue) Fill(ctx context.Context, payloads [][]byte) error {
	texts := make([]string, len(payloads))
	for i, p := range payloads {
		texts[i] = string(p)
	}
	_, err := q.pool.Exec(ctx, `select count(*) from add_jobs(array(
		select row($1, payload::json, null, null, null, null, null, null)::job_spec from unnest($2::text[]) as payload))`, taskType, texts)
	return err
}

func (q *graphileQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	var due *time.Time
	if delay > 0 {
		at := time.Now().Add(delay)
		due = &at
	}
	_, err := q.pool.Exec(ctx, "select id from add_job($1, $2::json, run_at => $3)", taskType, string(payload), due)
	return err
}

func (q *graphileQueue) Work(ctx context.Context, handle func([]byte) error) error {
	if _, err := io.WriteString(q.in, "begin\n"); err != nil {
		return fmt.Errorf("start graphile-worker: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- relay(q.out, "ended", handle) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if _, err := io.WriteString(q.in, "end\n"); err != nil {
		return errors.Join(fmt.Errorf("stop graphile-worker: %w", err), <-ended)
	}
	return <-ended
}

// relay calls handle for every handler that worker.mjs reports. It returns nil when it has read the line last.
func relay(out *bufio.Reader, last string, handle func([]byte) error) error {
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("read from graphile-worker until %q: %w", last, err)
		}
		line = strings.TrimSuffix(line, "\n")
		if line == last {
			return nil
		}
		number, payload, found := strings.Cut(line, " ")
		count, err := strconv.Atoi(number)
		if err != nil || !found || handle == nil {
			return fmt.Errorf("unexpected line from graphile-worker: %q", line)
		}
		for range count {
			if err := handle([]byte(payload)); err != nil {
				return err
			}
		}
	}
}

// graphileVersion returns the versions of graphile-worker and of its Node.js, or "" if they are not installed.
func graphileVersion() (string, error) {
	folder := os.Getenv(graphileFolder)
	if folder == "" {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(folder, "node_modules", graphileModule, "package.json"))
	if err != nil {
		return "", err
	}
	var module struct{ Version string }
	if err := json.Unmarshal(text, &module); err != nil {
		return "", err
	}
	node, err := exec.Command(filepath.Join(folder, "node_modules", ".bin", "node"), "--version").Output()
	return fmt.Sprintf("v%s on Node.js %s", module.Version, strings.TrimSpace(string(node))), err
}
