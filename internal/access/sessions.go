package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// SessionLifetime is how long a session is valid.
const SessionLifetime = 12 * time.Hour

const (
	keyName   = "console_key" // the name of the key in the store
	keyLength = 32            // in bytes
	// keyFresh is how long a process uses the key without reading it again. A store that has lost commits may have lost
	// the key, and then another process creates a new one.
	keyFresh = time.Minute
)

// Secrets is the part of a store that has the key of the sessions.
type Secrets interface {
	Secret(ctx context.Context, name string, create func() string) (string, error)
}

// Sessions creates and checks sessions. All processes with the same store accept the same sessions, by their own
// clocks. It is safe for concurrent use.
type Sessions struct {
	store Secrets
	turn  chan struct{} // has a value while a call uses the fields below
	key   []byte        // nil before the first read
	read  time.Time     // when the last successful read of the key began
}

// NewSessions returns the Sessions of a store. It does not use the store yet.
func NewSessions(s Secrets) *Sessions {
	return &Sessions{store: s, turn: make(chan struct{}, 1)}
}

// Session is a session of a browser.
type Session struct {
	Token   int64     // the id of the token
	Expires time.Time // exact to a second
	nonce   [nonceLength]byte
	mac     [sha256.Size]byte
}

// IsDue reports whether the session is in its second half, in which it should be renewed.
func (s Session) IsDue() bool { return time.Until(s.Expires) < SessionLifetime/2 }

// The form of a session: a byte with its version, the id of the token, the time at which the session expires in seconds
// since 1970, the nonce, and the MAC.
const (
	sessionVersion = 1
	nonceLength    = 16
	signedLength   = 1 + 8 + 8 + nonceLength
	sessionLength  = signedLength + sha256.Size
)

// sessionEncoding is strict, so that each session has one value.
var sessionEncoding = base64.RawURLEncoding.Strict()

// ParseSession returns the session with a value. Anyone can make such a value; see Genuine. ok is false if the value
// has another form.
func ParseSession(value string) (s Session, ok bool) {
	text, err := sessionEncoding.DecodeString(value)
	if err != nil || len(text) != sessionLength || text[0] != sessionVersion {
		return Session{}, false
	}
	s.Token = int64(binary.BigEndian.Uint64(text[1:]))
	s.Expires = time.Unix(int64(binary.BigEndian.Uint64(text[9:])), 0)
	copy(s.nonce[:], text[17:])
	copy(s.mac[:], text[signedLength:])
	return s, true
}

// Value returns the value of the session in a cookie.
func (s Session) Value() string {
	return sessionEncoding.EncodeToString(append(s.signed(), s.mac[:]...))
}

// signed returns the bytes before the MAC.
func (s Session) signed() []byte {
	text := append(make([]byte, 0, sessionLength), sessionVersion)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Token))
	text = binary.BigEndian.AppendUint64(text, uint64(s.Expires.Unix()))
	return append(text, s.nonce[:]...)
}

// sign returns the MAC of the session. The MAC also covers the hash of the token, which is not in the session. A store
// that has lost commits, or was restored from a backup, may give the id of a lost token to another one. The sessions of
// the lost token must not belong to the other one.
func (s Session) sign(key []byte, t store.Token) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(s.signed())
	mac.Write([]byte(t.Hash))
	return mac.Sum(nil)
}

// Create returns a new session for a token.
func (s *Sessions) Create(ctx context.Context, t store.Token) (Session, error) {
	key, err := s.currentKey(ctx)
	if err != nil {
		return Session{}, err
	}
	session := Session{Token: t.ID, Expires: time.Now().Add(SessionLifetime)}
	_, _ = rand.Read(session.nonce[:]) // returns no error
	copy(session.mac[:], session.sign(key, t))
	return session, nil
}

// Genuine reports whether Create has returned the session for the token. The session may have expired.
func (s *Sessions) Genuine(ctx context.Context, session Session, t store.Token) (bool, error) {
	key, err := s.currentKey(ctx)
	if err != nil {
		return false, err
	}
	return session.Token == t.ID && hmac.Equal(session.mac[:], session.sign(key, t)), nil
}

// errKey has no part of the key, because errors are logged.
var errKey = errors.New("the key of the sessions in the store has another form")

// currentKey returns the key. One call at a time reads it, so that many requests do not load the store.
func (s *Sessions) currentKey(ctx context.Context) ([]byte, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, errSlowStore
	}
	began := time.Now()
	if s.key != nil && began.Sub(s.read) < keyFresh {
		return s.key, nil
	}
	text, err := s.store.Secret(ctx, keyName, newKey)
	if err != nil {
		return nil, err
	}
	key, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(key) != keyLength {
		return nil, errKey
	}
	s.key, s.read = key, began
	return key, nil
}

func newKey() string {
	key := make([]byte, keyLength)
	_, _ = rand.Read(key) // returns no error
	return base64.RawURLEncoding.EncodeToString(key)
}
