package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

// bulkOver returns a bulk that stores tasks with enqueue, and its output.
func bulkOver(t *testing.T, enqueue func([]holdfast.NewTask) ([]producer.Result, error)) (b *bulk, stdout, stderr *bytes.Buffer) {
	t.Helper()
	check, err := newChecker(configs.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(check.Close)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &bulk{
		t: &tool{terminal: terminal{stdout: stdout, stderr: stderr}}, checker: check, defaults: holdfast.NewTask{Type: "mail"},
		enqueue: func(_ context.Context, tasks []holdfast.NewTask) ([]producer.Result, error) { return enqueue(tasks) },
		results: &resultWriter{w: stdout, format: asJSONL},
		types:   make(map[string]bool),
	}, stdout, stderr
}

// numbered returns n results with consecutive ids.
func numbered(first, n int) []producer.Result {
	results := make([]producer.Result, n)
	for i := range results {
		results[i].ID = holdfast.TaskID(first + i)
	}
	return results
}

// If an open transaction holds the unique keys of some lines, the command reports these lines and stores the others.
func TestBulkNamesTheLinesWhoseKeysAreHeld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines  string
		code   int
		stored string
	}{
		"some": {"{}\n{\"unique\":\"a\"}\n\n{}\n{\"unique\":\"b\"}\n", exitPartly, `{"line":1,"id":"1","duplicate":false}` + "\n" + `{"line":4,"id":"3","duplicate":false}` + "\n"},
		"all":  {"{\"unique\":\"a\"}\n{\"unique\":\"b\"}\n", exitUnavailable, ""},
	} {
		b, stdout, stderr := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
			results := numbered(1, len(tasks))
			var held producer.TaskErrors
			for i, task := range tasks {
				if task.Unique != "" {
					results[i] = producer.Result{}
					held = append(held, &producer.TaskError{Index: i, Err: &store.KeyHeldError{Keys: []string{task.Unique}}})
				}
			}
			return results, held
		})
		err := b.run(t.Context(), strings.NewReader(test.lines))
		if exitCode(err) != test.code || stdout.String() != test.stored {
			t.Errorf("%s: exit code %d, %q", name, exitCode(err), stdout)
		}
		for _, want := range []string{`line 2: `, `holds the unique key "a"`, `holds the unique key "b"`, "bad 2"} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: %q is not in %s", name, want, stderr)
			}
		}
	}
}

// If the store refuses a task, the command reports its line and stores the others.
func TestBulkReportsRefusedLines(t *testing.T) {
	t.Parallel()
	stored := 0
	b, stdout, stderr := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		results := make([]producer.Result, len(tasks))
		var refused producer.TaskErrors
		for i, task := range tasks {
			if task.Queue == "bad" {
				refused = append(refused, &producer.TaskError{Index: i, Err: fmt.Errorf("%w: the column cannot hold it", holdfast.ErrInvalid)})
				continue
			}
			stored++
			results[i].ID = holdfast.TaskID(stored)
		}
		return results, refused
	})
	err := b.run(t.Context(), strings.NewReader("{}\n{\"queue\":\"bad\"}\n\n{}\n"))
	if exitCode(err) != exitPartly || stored != 2 {
		t.Errorf("exit code %d, %d stored", exitCode(err), stored)
	}
	want := "{\"line\":1,\"id\":\"1\",\"duplicate\":false}\n{\"line\":4,\"id\":\"2\",\"duplicate\":false}\n"
	if stdout.String() != want {
		t.Errorf("stdout %s", stdout)
	}
	if got := stderr.String(); got != "holdfast: line 2: the column cannot hold it\nholdfast: enqueued 2, duplicates 0, bad 1\n" {
		t.Errorf("stderr %s", got)
	}
}

// If a server fails, the error names the first line that is not stored, and the summary counts the stored tasks.
func TestBulkStopsWhenAServerFails(t *testing.T) {
	t.Parallel()
	b, stdout, stderr := bulkOver(t, func([]holdfast.NewTask) ([]producer.Result, error) {
		return numbered(1, 2), fmt.Errorf("store tasks: %w", holdfast.ErrUnavailable)
	})
	err := b.run(t.Context(), strings.NewReader("{}\n{}\n\n{}\n{}\n"))
	if exitCode(err) != exitUnavailable || !strings.HasPrefix(err.Error(), "stopped at line 4: ") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if strings.Count(stdout.String(), "\n") != 2 || !strings.Contains(stderr.String(), "enqueued 2, duplicates 0, bad 0") {
		t.Errorf("stdout %s, stderr %s", stdout, stderr)
	}
}

// If a server fails after a line with a held key, that line is bad and not enqueued, and no line is enqueued twice. The
// final error does not contain the error of the held line, whose index is not a line number.
func TestBulkStopsBehindAHeldLine(t *testing.T) {
	t.Parallel()
	calls := 0
	b, stdout, stderr := bulkOver(t, func([]holdfast.NewTask) ([]producer.Result, error) {
		calls++
		held := producer.TaskErrors{{Index: 1, Err: &store.KeyHeldError{Keys: []string{"a"}}}}
		results := numbered(1, 3)
		results[1] = producer.Result{}
		return results, errors.Join(held, fmt.Errorf("store tasks: %w", holdfast.ErrUnavailable))
	})
	err := b.run(t.Context(), strings.NewReader("\n{}\n{\"unique\":\"a\"}\n{}\n{}\n{}\n"))
	if exitCode(err) != exitUnavailable || calls != 1 {
		t.Errorf("exit code %d after %d calls: %v", exitCode(err), calls, err)
	}
	if want := "stopped at line 5: store tasks: " + holdfast.ErrUnavailable.Error(); err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
	if want := "{\"line\":2,\"id\":\"1\",\"duplicate\":false}\n{\"line\":4,\"id\":\"3\",\"duplicate\":false}\n"; stdout.String() != want {
		t.Errorf("stdout %s", stdout)
	}
	for _, want := range []string{"line 3: ", "enqueued 2, duplicates 0, bad 1"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is not in %s", want, stderr)
		}
	}
}

// After a read error the command stores all lines that it has read.
func TestBulkStoresAllLinesBeforeAReadError(t *testing.T) {
	t.Parallel()
	var sizes []int
	b, _, stderr := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		sizes = append(sizes, len(tasks))
		return numbered(1, len(tasks)), nil
	})
	text := strings.Repeat("{}\n", 2*chunkTasks+1) + "{"
	err := b.run(t.Context(), io.MultiReader(strings.NewReader(text), brokenReader{}))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d: cut", 2*chunkTasks+2)) {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(stderr.String(), fmt.Sprintf("enqueued %d,", 2*chunkTasks+1)) {
		t.Errorf("chunks %v, stderr %s", sizes, stderr)
	}
	for _, size := range sizes {
		if size > chunkTasks {
			t.Errorf("a chunk of %d tasks", size)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("cut") }

// If no more input is available, the command stores an incomplete chunk.
func TestBulkDoesNotWaitForAChunk(t *testing.T) {
	t.Parallel()
	stored := make(chan int)
	b, _, _ := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		stored <- len(tasks)
		return numbered(1, len(tasks)), nil
	})
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.run(t.Context(), reader) }()
	for range 3 {
		if _, err := io.WriteString(writer, "{}\n"); err != nil {
			t.Fatal(err)
		}
		if n := <-stored; n != 1 {
			t.Errorf("stored %d", n)
		}
	}
	writer.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A chunk has a maximum size and a maximum number of tasks.
func TestBulkChunksByBytes(t *testing.T) {
	t.Parallel()
	largest := 0
	b, _, _ := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		largest = max(largest, len(tasks))
		return numbered(1, len(tasks)), nil
	})
	line := `{"payload":"` + strings.Repeat("x", 1<<19) + "\"}\n"
	repeated := make([]io.Reader, 100)
	for i := range repeated {
		repeated[i] = strings.NewReader(line)
	}
	if err := b.run(t.Context(), io.MultiReader(repeated...)); err != nil {
		t.Fatal(err)
	}
	if largest > chunkBytes/(1<<19) || b.enqueued != 100 {
		t.Errorf("largest chunk: %d tasks, total: %d tasks", largest, b.enqueued)
	}
}
