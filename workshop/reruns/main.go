// Command reruns prints the tests that failed at first and passed when they were repeated, each with the output of its
// first failure. It reads the files named by its arguments, with the events of go test -json that gotestsum writes.
// Such a test fails sometimes, so the test or the code has a defect.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	var runs runs
	for _, path := range os.Args[1:] {
		if err := runs.readFile(path); err != nil {
			fmt.Fprintln(os.Stderr, "reruns:", err)
			os.Exit(1)
		}
	}
	runs.print(os.Stdout)
}

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// test is a test, or a subtest, with the package.
type test struct{ pkg, name string }

// run is the newest execution of a test, with a summary of the earlier ones.
type run struct {
	output  []string
	failure []string // the output of the first failure; nil: it never failed
	flaky   bool     // whether the test failed and passed later
}

// runs has the executions of all tests. The zero value is ready to use.
type runs struct {
	of    map[test]*run
	order []test // in the order of their first events
}

func (r *runs) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.read(file)
}

// read reads events. It skips lines without an event, because a program under test may print to the same file.
func (r *runs) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Test != "" {
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *runs) add(e event) {
	key := test{e.Package, e.Test}
	t := r.of[key]
	if t == nil {
		if r.of == nil {
			r.of = make(map[test]*run)
		}
		t = &run{}
		r.of[key], r.order = t, append(r.order, key)
	}
	switch e.Action {
	case "run":
		t.output = nil
	case "output":
		t.output = append(t.output, e.Output)
	case "fail":
		if t.failure == nil {
			t.failure = append([]string{}, t.output...)
		}
	case "pass":
		t.flaky = t.failure != nil
	}
}

// print prints the list. It leaves out a test whose subtest is in the list.
func (r *runs) print(to io.Writer) {
	var list []test
	for _, key := range r.order {
		if !r.of[key].flaky {
			continue
		}
		if !slices.ContainsFunc(r.order, func(other test) bool {
			return other.pkg == key.pkg && strings.HasPrefix(other.name, key.name+"/") && r.of[other].flaky
		}) {
			list = append(list, key)
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(to, "FLAKY: none")
		return
	}
	fmt.Fprintf(to, "FLAKY: %d\n", len(list))
	for _, key := range list {
		fmt.Fprintf(to, "%s %s failed first and passed later. The first failure:\n", key.pkg, key.name)
		for _, line := range r.of[key].failure {
			fmt.Fprint(to, "    ", line)
		}
	}
}
