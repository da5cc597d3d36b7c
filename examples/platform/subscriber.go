package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// loopback is the network of the subscribers. Without a permission, messages do not reach private networks.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// newKey returns a signing key.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// subscriber is a receiver of webhooks.
type subscriber struct {
	name, host  string
	platformKey string // with which the platform signs

	mu       sync.Mutex
	key      string // by which the subscriber verifies
	faulty   bool   // each third request fails
	requests int
	refused  int
	known    map[string]bool // the ids of the messages that have arrived
}

// newSubscriber starts a subscriber at a free port of this machine.
func newSubscriber(name string) *subscriber {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	key := newKey()
	s := &subscriber{name: name, host: listener.Addr().String(), platformKey: key, key: key, known: map[string]bool{}}
	go func() { log.Fatal(http.Serve(listener, s)) }()
	return s
}

// repair gives the subscriber the key of the platform.
func (s *subscriber) repair() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = s.platformKey
}

// ServeHTTP takes a message. It refuses wrong signatures, and counts a message that comes twice once.
func (s *subscriber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	s.requests++
	switch {
	case err != nil || !s.signed(r.Header, body):
		s.refused++
		w.WriteHeader(http.StatusUnauthorized)
	case s.faulty && s.requests%3 == 0:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		s.known[r.Header.Get("webhook-id")] = true
	}
}

// signed reports whether a signature fits the key. A real receiver also refuses old timestamps.
func (s *subscriber) signed(h http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.key, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(h.Get("webhook-signature")), []byte(want))
}

// report prints what has arrived.
func report(subscribers []*subscriber) {
	for _, s := range subscribers {
		s.mu.Lock()
		fmt.Printf("  %-8s %3d messages in %d requests, %d refused\n", s.name, len(s.known), s.requests, s.refused)
		s.mu.Unlock()
	}
}
