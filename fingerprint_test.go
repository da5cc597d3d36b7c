package holdfast_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

// causes lists error texts. All texts in one list have the same cause.
var causes = [][]string{
	// Go
	{"open /var/spool/job-17.json: no such file or directory", "open /var/spool/job-9.json: no such file or directory"},
	{"open /var/spool/job-17.json: permission denied"},
	{"strconv.Atoi: parsing \"12a\": invalid syntax", "strconv.Atoi: parsing \"\\\"x\\\"\": invalid syntax"},
	{"strconv.Atoi: parsing \"99999999999999999999\": value out of range"},
	{"panic: runtime error: index out of range [5] with length 3", "panic: runtime error: index out of range [12] with length 0"},
	{"panic: runtime error: invalid memory address or nil pointer dereference"},
	{"panic: interface conversion: interface {} is string, not int"},
	{"context deadline exceeded"},
	{"context canceled"},
	{"unexpected EOF"},
	{"write |1: broken pipe", "write |7: broken pipe"},
	{"order 4711 of customer cus_N7aB3kQz1xPq not found", "order 9 of customer cus_Zz81LmQ04kRt not found"},
	{"lock 0xc000123450 held since 2026-03-01T10:00:00Z", "lock 0xc0000aa000 held since 2026-11-22T23:59:59.123+01:00"},
	{"retry budget used up after 1m30s", "retry budget used up after 250ms", "retry budget used up after 2h0m0.5s"},
	{"pod worker-7d9f8b6c54-x2k4q evicted", "pod worker-5c44f9d7bb-9zm2p evicted"},
	{"step finished at 2026-03-01 10:00:00.5 +0000 UTC m=+0.001", "step finished at 2025-12-31 23:00:00.25 +0000 UTC m=+812.4"},
	{"commit 9fceb02d0ae598e95dc970b74767f19372d61af8 is not an ancestor", "commit 1a2b3c4 is not an ancestor"},
	// PostgreSQL
	{`pq: duplicate key value violates unique constraint "orders_pkey"`},
	{`ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505)`},
	{"pq: deadlock detected"},
	{"pq: canceling statement due to statement timeout"},
	{"pq: could not serialize access due to concurrent update"},
	{`pq: password authentication failed for user "app"`, `pq: password authentication failed for user "report"`},
	{"pq: sorry, too many clients already"},
	{`pq: relation "orders" does not exist at position 2:17 (42P01)`, `pq: relation "bills" does not exist at position 1:8 (42P01)`},
	{"Process 4812 waits for ShareLock on transaction 99123; blocked by process 4810.",
		"Process 17 waits for ShareLock on transaction 4; blocked by process 18."},
	// HTTP
	{"GET https://api.example.com/v1/orders/42?trace=a1: 503 Service Unavailable",
		"GET https://api.example.com/v1/orders/77: 503 Service Unavailable"},
	{"GET https://api.example.com/v1/orders/42: 404 page missing"},
	{"net/http: request canceled (Client.Timeout exceeded while awaiting headers)"},
	{"http2: server sent GOAWAY and closed the connection; LastStreamID=1999, ErrCode=NO_ERROR",
		"http2: server sent GOAWAY and closed the connection; LastStreamID=3, ErrCode=NO_ERROR"},
	{"http: server gave HTTP response to HTTPS client"},
	{"too many requests, retry after Wed, 21 Oct 2026 07:28:00 GMT", "too many requests, retry after Mon, 02 Nov 2026 17:00:01 GMT"},
	// Addresses
	{"dial tcp 10.1.2.3:443: connect: connection refused", "dial tcp 192.168.7.1:8080: connect: connection refused",
		"dial tcp [2001:db8::1]:443: connect: connection refused"},
	{"dial tcp 10.1.2.3:443: i/o timeout"},
	{"dial tcp 10.1.2.3:443: connect: no route to host"},
	{"read tcp 10.0.0.3:51234->52.1.2.3:443: read: connection reset by peer", "read tcp 172.17.0.2:80->10.9.9.9:1: read: connection reset by peer"},
	{"peer fe80::1 closed the session", "peer 2001:db8:0:1::42 closed the session"},
	// DNS
	{"lookup api.example.com on 127.0.0.11:53: no such host", "lookup api.example.com on 10.96.0.10:53: no such host"},
	{"lookup other.example.org on 127.0.0.11:53: no such host"},
	{"lookup api.example.com on 127.0.0.11:53: server misbehaving"},
	// TLS
	{"tls: failed to verify certificate: x509: certificate signed by unknown authority"},
	{"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-22T10:00:00Z is after 2026-11-01T00:00:00Z",
		"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-12-24T18:30:00Z is after 2026-12-24T00:00:00Z"},
	{"tls: failed to verify certificate: x509: certificate is valid for a.example.com, not b.example.com"},
	{"remote error: tls: handshake failure"},
	{"tls: first record does not look like a TLS handshake"},
	// JSON
	{"invalid character '}' looking for beginning of value", "invalid character '\\'' looking for beginning of value"},
	{"invalid character 'x' after object key"},
	{"unexpected end of JSON input"},
	{"json: cannot unmarshal string into Go struct field Order.quantity of type int"},
	{"json: cannot unmarshal string into Go struct field Order.total of type float64"},
	{`json: unknown field "mail"`, `json: unknown field "names"`},
	// Text of people
	{"can't reach the user's mailbox 'ada'", "can't reach the user's mailbox 'grace'"},
	{"account 6f9619ff-8b86-d011-b42d-00cf4fc964ff is locked", "account 123e4567-e89b-12d3-a456-426614174000 is locked"},
	{"balance -12.50 is below 0", "balance -1,204.99 is below 0"},
	{"line one\n  line two", "line one line two"},
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	texts := 0
	first := map[string]string{}
	for _, list := range causes {
		want := holdfast.Normalize(list[0])
		if other, taken := first[want]; taken {
			t.Errorf("different causes have one form, %q:\n%s\n%s", want, other, list[0])
		}
		first[want] = list[0]
		for _, text := range list {
			texts++
			if got := holdfast.Normalize(text); got != want {
				t.Errorf("one cause has two forms:\n%s\n%s\n%s\n%s", list[0], want, text, got)
			}
			if again := holdfast.Normalize(want); again != want {
				t.Errorf("Normalize changes %q to %q", want, again)
			}
		}
	}
	if texts < 60 {
		t.Errorf("the table has %d texts", texts)
	}
}

func FuzzNormalize(f *testing.F) {
	for _, list := range causes {
		f.Add(list[0])
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := holdfast.Normalize(text)
		if once != holdfast.Normalize(text) {
			t.Error("two calls differ")
		}
		if strings.ContainsAny(once, "0123456789\n") {
			t.Errorf("%q has a digit or a line break", once)
		}
	})
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	delivery := func(text, url string, status int) holdfast.Report {
		return holdfast.ReportOf(holdfast.Detailed(errors.New(text), fmt.Sprintf("http_%d", status), map[string]any{"url": url, "status": status}))
	}
	base := delivery("503 at 10:00:00", "https://a.example.com/x/1", 503)
	of := func(r holdfast.Report) string { return holdfast.Fingerprint("http", r) }
	if len(of(base)) != 16 {
		t.Errorf("a fingerprint is %q", of(base))
	}
	for name, same := range map[string]holdfast.Report{
		"path": delivery("503 at 10:00:00", "https://a.example.com/x/2", 503),
		"text": delivery("try again, please", "https://a.example.com/x/1", 503),
		"case": delivery("503", "https://A.example.com/", 503),
	} {
		if of(same) != of(base) {
			t.Errorf("another %s changes the fingerprint", name)
		}
	}
	for name, other := range map[string]holdfast.Report{
		"host":    delivery("503 at 10:00:00", "https://b.example.com/x/1", 503),
		"status":  delivery("503 at 10:00:00", "https://a.example.com/x/1", 500),
		"port":    delivery("503 at 10:00:00", "https://a.example.com:8443/x/1", 503),
		"details": holdfast.ReportOf(errors.New("503 at 10:00:00")),
	} {
		if of(other) == of(base) {
			t.Errorf("another %s does not change the fingerprint", name)
		}
	}
	if holdfast.Fingerprint("mail", base) == of(base) {
		t.Error("another type does not change the fingerprint")
	}
}

func TestFingerprintsOfPanics(t *testing.T) {
	t.Parallel()
	first, again, other := panicIn(explode, 1), panicIn(explode, 2), panicIn(implode, 1)
	if of := holdfast.Fingerprint("x", first); of != holdfast.Fingerprint("x", again) {
		t.Errorf("two panics of one function differ:\n%s\n%s", first.Stack, again.Stack)
	} else if of == holdfast.Fingerprint("x", other) {
		t.Errorf("panics of two functions do not differ:\n%s\n%s", first.Stack, other.Stack)
	}
	damaged := first
	damaged.Stack = "\npanic("
	_ = holdfast.Fingerprint("x", damaged)
}

// A handler that ends its goroutine is grouped by the function that called runtime.Goexit.
func TestFingerprintsOfExits(t *testing.T) {
	t.Parallel()
	first, again, other := holdfast.ReportOf(&faulty{text: leave}), holdfast.ReportOf(&faulty{text: leave}), holdfast.ReportOf(&faulty{text: depart})
	if of := holdfast.Fingerprint("x", first); of != holdfast.Fingerprint("x", again) {
		t.Errorf("two exits of one function differ:\n%s\n%s", first.Stack, again.Stack)
	} else if of == holdfast.Fingerprint("x", other) {
		t.Errorf("exits of two functions do not differ:\n%s\n%s", first.Stack, other.Stack)
	}
}

//go:noinline
func leave() string { return exit[string]() }

//go:noinline
func depart() string { return exit[string]() }

// panicIn returns the report of a panic of f.
func panicIn(f func(int), n int) (report holdfast.Report) {
	defer func() {
		report = holdfast.ReportOf(&holdfast.PanicError{Value: recover(), Stack: string(debug.Stack())})
	}()
	f(n)
	return
}

//go:noinline
func explode(n int) { panic(fmt.Sprintf("task %d exploded", n)) }

//go:noinline
func implode(n int) { panic(fmt.Sprintf("task %d exploded", n)) }

func TestTarget(t *testing.T) {
	t.Parallel()
	for details, want := range map[string]struct {
		host   string
		status int
	}{
		``:                              {},
		`[]`:                            {},
		`{"url": 7, "status": "x"}`:     {},
		`{"url": "https://[::1]:8/x"}`:  {"[::1]:8", 0},
		`{"url": "://", "status": 404}`: {"", 404},
		`{"url": "http://B.example", "status": 9}`: {"b.example", 0},
	} {
		r := holdfast.Report{Details: []byte(details)}
		if host, status := r.Target(); host != want.host || status != want.status {
			t.Errorf("%s: host %q, status %d", details, host, status)
		}
	}
}
