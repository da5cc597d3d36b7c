package configs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
)

// FuzzLoad loads arbitrary files. Load must return an ErrInvalid, or a valid configuration that is the same after it is
// written and read again.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(exampleText()))
	f.Add([]byte("types: {a.b: {retry: {delays: [1s, 2m]}}}\nwebhook: {secrets: {x: [" + secretA + "]}, secret_hosts: {x: a.b}}"))
	f.Add([]byte("a: &a [x]\nb: [*a, *a]"))
	f.Add([]byte("worker: {lease: 1e3}\n---\n"))
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			t.Skip("the file is too large")
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{File: path})
		if err != nil {
			checkProblems(t, err)
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("Load returned an invalid configuration: %v", err)
		}
		if err := c.Settings().Validate(); err != nil {
			t.Fatalf("the task settings are not valid: %v", err)
		}
		again := make(map[string]string)
		for _, s := range c.settings() {
			again[s.key] = s.value.text()
		}
		second, err := Load(Options{Flags: again})
		if err != nil {
			t.Fatalf("the written configuration is not valid: %v", err)
		}
		c.origins, second.origins = nil, nil
		if first, again := c.Entries(), second.Entries(); !reflect.DeepEqual(first, again) {
			t.Fatalf("got %v\nwant %v", again, first)
		}
	})
}

// checkProblems checks an error of Load. Every problem must have a key, an origin and a text, and must be printable.
func checkProblems(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, holdfast.ErrInvalid) {
		t.Fatalf("not an ErrInvalid: %v", err)
	}
	problems := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		problems = joined.Unwrap()
	}
	for len(problems) > 0 {
		one := problems[0]
		problems = problems[1:]
		if joined, ok := one.(interface{ Unwrap() []error }); ok && strings.Contains(one.Error(), "\n") {
			problems = append(problems, joined.Unwrap()...)
			continue
		}
		if p, ok := errors.AsType[*Error](one); ok && (p.Key == "" || p.Origin == "" || p.Problem == "") {
			t.Fatalf("incomplete problem: %+v", p)
		}
		if text := one.Error(); len(text) > 2000 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("not printable, %d bytes: %.3000q", len(text), text)
		}
	}
}

// FuzzRetrySettings loads retry policies from text. A policy that Load accepts must be valid, have all delays in range,
// and be the same after it is written and read again. An error must name a key of the policy.
func FuzzRetrySettings(f *testing.F) {
	f.Add("exponential", "10s", "2.5", "1h", "0.1", "", "0s", "10", "5", "1000")
	f.Add("list", "0s", "1", "0s", "1", "1s, 2h,,0s", "24h", "1", "1", "0")
	f.Add("LIST", "-1s", "NaN", "1e9h", "+Inf", ",", "10000000h", "0x10", "-0", "99999999999999999999")
	f.Fuzz(func(t *testing.T, strategy, base, factor, longest, jitter, delays, deadline, attempts, crashes, deferrals string) {
		const under = "types.mail."
		flags := map[string]string{
			under + "retry.strategy": strategy, under + "retry.base": base, under + "retry.factor": factor, under + "retry.max": longest,
			under + "retry.jitter": jitter, under + "retry.delays": delays, under + "retry.deadline": deadline,
			under + "max_attempts": attempts, under + "max_crashes": crashes, under + "max_deferrals": deferrals,
		}
		c, err := Load(Options{Flags: flags})
		if err != nil {
			checkProblems(t, err)
			if p, ok := errors.AsType[*Error](err); !ok || !strings.HasPrefix(p.Key, under) {
				t.Fatalf("the error names another key: %v", err)
			}
			return
		}
		policy := c.Settings().For("mail").Policy
		if err := policy.Validate(); err != nil {
			t.Fatalf("Load returned an invalid policy: %v", err)
		}
		for _, failures := range []int{1, 2, 1000, policy.MaxAttempts} {
			for _, dice := range []float64{0, 0.5, 0.999} {
				const century = 100 * 365 * 24 * time.Hour
				if d := policy.Delay(failures, dice); d < 0 || d > century {
					t.Fatalf("%+v waits %s after %d failures", policy, d, failures)
				}
			}
		}
		written := c.Types["mail"]
		for _, s := range taskSettings(under, &written) {
			flags[s.key] = s.value.text()
		}
		again, err := Load(Options{Flags: flags})
		if err != nil || !reflect.DeepEqual(again.Types, c.Types) {
			t.Fatalf("the written policy is read as %+v, %v\nwant %+v", again.Types, err, c.Types)
		}
	})
}
