package access

import (
	"context"
	"crypto/subtle"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

const (
	// authTimeout is the time limit of an authentication, and of a read of the tokens.
	authTimeout = 3 * time.Second

	keysFresh = time.Second            // a revocation takes effect within this time
	keysPause = 100 * time.Millisecond // minimum time between two reads
	useEvery  = time.Minute            // minimum time between two records of the use of a token
)

// keyring caches the tokens. It reads them at most once per keysPause, however many requests arrive.
type keyring struct {
	store Tokens

	mu      sync.Mutex
	last    tokenRead           // the last successful read
	begun   time.Time           // start of the last read, successful or not
	current *tokenRead          // the read in progress, or nil
	used    map[int64]time.Time // by token id: when its use was recorded
}

// tokenRead is one read of the list of tokens. The calls that wait for it share its result.
type tokenRead struct {
	done   chan struct{} // closed at the end
	began  time.Time
	tokens []store.Token
	err    error
}

func newKeyring(s Tokens) *keyring {
	return &keyring{store: s, used: make(map[int64]time.Time)}
}

// bySecret returns the token with a secret.
func (k *keyring) bySecret(ctx context.Context, secret string) (store.Token, bool, error) {
	hash := []byte(app.HashSecret(secret))
	return k.find(ctx, func(t store.Token) bool { return subtle.ConstantTimeCompare([]byte(t.Hash), hash) == 1 })
}

// find returns the token that matches. If none does, the token may be a new one, so find then reads the tokens again.
func (k *keyring) find(ctx context.Context, matches func(store.Token) bool) (store.Token, bool, error) {
	arrived := time.Now()
	for _, since := range []time.Time{arrived.Add(-keysFresh), arrived} {
		tokens, err := k.load(ctx, since)
		if err != nil {
			return store.Token{}, false, err
		}
		found := -1
		for i, t := range tokens { // compares all, so that the duration reveals nothing about the tokens
			if matches(t) {
				found = i
			}
		}
		if found >= 0 {
			return tokens[found], true, nil
		}
	}
	return store.Token{}, false, nil
}

// load returns the tokens from a read that began after since. If the read fails, all calls that wait for it get its
// error, so that they do not wait one after another.
func (k *keyring) load(ctx context.Context, since time.Time) ([]store.Token, error) {
	for {
		k.mu.Lock()
		if k.last.began.After(since) {
			defer k.mu.Unlock()
			return k.last.tokens, nil
		}
		read, mine := k.current, k.current == nil
		if mine {
			read = &tokenRead{done: make(chan struct{})}
			k.current = read
		}
		pause := keysPause - time.Since(k.begun)
		k.mu.Unlock()
		if mine {
			k.read(context.WithoutCancel(ctx), read, pause) // other calls also wait for this read
		}
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, errSlowStore
		}
		if read.err != nil {
			return nil, read.err
		}
	}
}

var errSlowStore = fmt.Errorf("%w: the store did not return the tokens within %s", holdfast.ErrUnavailable, authTimeout)

// read reads the tokens after a pause.
func (k *keyring) read(ctx context.Context, read *tokenRead, pause time.Duration) {
	time.Sleep(pause)
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	read.began, read.err = time.Now(), errSlowStore // the error if the store panics
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if read.err == nil {
			k.last = *read
		}
		k.begun, k.current = read.began, nil
		close(read.done)
	}()
	tokens, err := k.store.Tokens(ctx)
	if ctx.Err() == nil {
		read.tokens, read.err = tokens, err
	}
}

// use records that a token was used, at most once a minute. After an error, a later request tries again.
func (k *keyring) use(ctx context.Context, id int64) {
	k.mu.Lock()
	last, now := k.used[id], time.Now()
	due := now.Sub(last) >= useEvery
	if due {
		k.used[id] = now
	}
	k.mu.Unlock()
	if due && k.store.UseToken(ctx, id) != nil {
		k.mu.Lock()
		k.used[id] = last
		k.mu.Unlock()
	}
}
