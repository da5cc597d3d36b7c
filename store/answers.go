package store

import (
	"context"
	"time"
)

// KeepAnswers is how long an answer is valid.
const KeepAnswers = 24 * time.Hour

// Answers makes requests idempotent. A client that got no answer sends its request again with the same key, and gets the
// answer to the first one.
type Answers interface {
	// Once calls f in a transaction and stores the answer of f in the same transaction. If f returns an error, the
	// transaction is rolled back, and Once returns that error. f uses tx for all its writes. Once may call f again if
	// the transaction conflicts with another one.
	//
	// If the store has an answer to a request with the same scope and key that is younger than KeepAnswers, Once does not
	// call f, and returns that answer. Its hash may differ from r.Hash; then it is the answer to another request. If
	// another call with the same scope and key is in progress, Once waits for its end.
	Once(ctx context.Context, r Request, f func(ctx context.Context, tx Tx) (Answer, error)) (Answer, error)
}

// Request identifies a request with an idempotency key.
type Request struct {
	Scope string // who sends the request; the keys of different scopes are different
	Key   string
	Hash  string // of the content of the request
}

// Answer is the answer to a request.
type Answer struct {
	Hash   string // of the request; Once sets it
	Status int
	Body   string
	Stored bool // the answer is that of an earlier call; Once sets it
}
