package main

import (
	"bufio"
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

// bulkOver returns a bulk whose tasks go to enqueue, and what it prints.
func bulkOver(t *testing.T, enqueue func([]holdfast.NewTask) ([]producer.Result, error)) (b *bulk, stdout, stderr *bytes.Buffer) {
	t.Helper()
	d, err := newDoor(configs.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &bulk{
		t: &tool{terminal: terminal{stdout: stdout, stderr: stderr}}, door: d, defaults: holdfast.NewTask{Type: "mail"},
		enqueue: func(_ context.Context, tasks []holdfast.NewTask) ([]producer.Result, error) { return enqueue(tasks) },
		results: &resultWriter{w: stdout, format: asJSONL},
		types:   make(map[string]bool),
	}, stdout, stderr
}

func linesOf(from io.Reader) *lineReader {
	return &lineReader{from: bufio.NewReaderSize(from, readBuffer), limit: 1 << 20}
}

func numbered(first, n int) []producer.Result {
	results := make([]producer.Result, n)
	for i := range results {
		results[i].ID = holdfast.TaskID(first + i)
	}
	return results
}

// The command names the lines whose unique keys are held by their numbers, and stores the other lines.
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
		err := b.run(t.Context(), linesOf(strings.NewReader(test.lines)))
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

// A task that only the store can refuse is told by its line, and its neighbours go in.
func TestBulkFindsWhatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	stored := 0
	b, stdout, stderr := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		results := make([]producer.Result, len(tasks))
		var refused producer.TaskErrors
		for i, task := range tasks {
			if task.Lane == "bad" {
				refused = append(refused, &producer.TaskError{Index: i, Err: fmt.Errorf("%w: the column cannot hold it", holdfast.ErrInvalid)})
				continue
			}
			stored++
			results[i].ID = holdfast.TaskID(stored)
		}
		return results, refused
	})
	err := b.run(t.Context(), linesOf(strings.NewReader("{}\n{\"lane\":\"bad\"}\n\n{}\n")))
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

// If a server fails half-way, it is told how far the work came.
func TestBulkStopsAtAServerThatFails(t *testing.T) {
	t.Parallel()
	b, stdout, stderr := bulkOver(t, func([]holdfast.NewTask) ([]producer.Result, error) {
		return numbered(1, 2), fmt.Errorf("store tasks: %w", holdfast.ErrUnavailable)
	})
	err := b.run(t.Context(), linesOf(strings.NewReader("{}\n{}\n\n{}\n{}\n")))
	if exitCode(err) != exitUnavailable || !strings.HasPrefix(err.Error(), "stopped at line 4: ") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if strings.Count(stdout.String(), "\n") != 2 || !strings.Contains(stderr.String(), "enqueued 2, duplicates 0, bad 0") {
		t.Errorf("stdout %s, stderr %s", stdout, stderr)
	}
}

// If a server fails after an earlier part of the lines had a held key, that line counts as bad and not as enqueued, and
// no line is sent again. The last error does not name the task again, whose number is not that of its line.
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
	err := b.run(t.Context(), linesOf(strings.NewReader("\n{}\n{\"unique\":\"a\"}\n{}\n{}\n{}\n")))
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

// A file that cannot be read on loses nothing that was read.
func TestBulkStoresWhatItRead(t *testing.T) {
	t.Parallel()
	var sizes []int
	b, _, stderr := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		sizes = append(sizes, len(tasks))
		return numbered(1, len(tasks)), nil
	})
	text := strings.Repeat("{}\n", 2*chunkTasks+1) + "{"
	err := b.run(t.Context(), linesOf(io.MultiReader(strings.NewReader(text), brokenReader{})))
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

// Whoever writes slowly is not kept waiting for a full chunk.
func TestBulkDoesNotWaitForAChunk(t *testing.T) {
	t.Parallel()
	stored := make(chan int)
	b, _, _ := bulkOver(t, func(tasks []holdfast.NewTask) ([]producer.Result, error) {
		stored <- len(tasks)
		return numbered(1, len(tasks)), nil
	})
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.run(t.Context(), linesOf(reader)) }()
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

// Memory is bounded by bytes too, not only by the number of tasks.
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
	if err := b.run(t.Context(), linesOf(io.MultiReader(repeated...))); err != nil {
		t.Fatal(err)
	}
	if largest > chunkBytes/(1<<19) || b.enqueued != 100 {
		t.Errorf("%d tasks in a chunk, %d in all", largest, b.enqueued)
	}
}
