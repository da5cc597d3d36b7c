package console_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/workshop/slow"
)

// raw sends the head of a form and size bytes of its body, and only then reads the status of the answer.
func (w *world) raw(path string, announced, size int64) int {
	w.Helper()
	conn, err := new(net.Dialer).DialContext(w.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * slow.Patience())); err != nil {
		w.Fatal(err)
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n", path, announced)
	if _, err := io.Copy(conn, io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, size))); err != nil {
		w.Fatalf("send the form: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.Fatalf("read the answer: %v", err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		w.Fatalf("read the answer: %v", err)
	}
	return answer.StatusCode
}

// letters is a reader without an end.
type letters struct{}

func (letters) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = 'x'
	}
	return len(into), nil
}

// TestFormsThatAreTooLargeOrNeverEnd checks that the client gets an answer, and that no request stays.
func TestFormsThatAreTooLargeOrNeverEnd(t *testing.T) {
	w := onFile(t, "")
	for _, path := range []string{"/login", "/do/retryTask"} {
		if status := w.raw(path, 100<<20, 100<<20); status != http.StatusRequestEntityTooLarge {
			t.Errorf("100 MB to %s: %d", path, status)
		}
	}
	w.console.SetBodyPause(slow.Times(100 * time.Millisecond))
	for _, path := range []string{"/login", "/do/retryTask"} {
		if status := w.raw(path, 1000, 1); status != http.StatusRequestTimeout {
			t.Errorf("a form to %s that never ends: %d", path, status)
		}
	}
}
