package store

import (
	"context"
	"time"
)

// KeepAnswers is how long an answer is valid.
const KeepAnswers = 24 * time.Hour

// Answers makes requests idempotent. A client that got no answer sends its request again with the same key, and gets
// the answer to the first request.
type Answers interface {
	// Once calls f in a transaction and stores the answer of f in the same transaction. f must use tx for all its
	// writes. If f returns an error, Once rolls the transaction back and returns that error. Once may call f again if
	// the transaction conflicts with another one.
	//
	// If the store has an answer to a request with the same scope and key, younger than KeepAnswers, Once returns that
	// answer without a call of f. If its hash differs from r.Hash, it is the answer to a different request. If another
	// call with the same scope and key is in progress, Once waits for its end.
	Once(ctx context.Context, r Request, f func(ctx context.Context, tx Tx) (Answer, error)) (Answer, error)
}

// Request identifies a request with an idempotency key.
type Request struct {
	Scope string // sender of the request; equal keys of different scopes are different
	Key   string
	Hash  string // of the content of the request
}

// Answer is the answer to a request.
type Answer struct {
	Hash   string // hash of the request; Once sets it
	Status int
	Body   string
	Stored bool // an earlier call has stored the answer; Once sets it
}
