package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var tokenTests = []test{
	{"creates, lists and revokes tokens", testTokens},
	{"has one token of a name", testTokenNames},
	{"lets tokens expire", testTokensExpire},
	{"records the use of a token at most once a minute", testUseToken},
	{"records changes of tokens in the audit log", testTokensAreAudited},
	{"refuses changes of tokens by an actor with a long name or reason", testTokensLongActor},
}

// createToken stores a token and returns it as the store lists it.
func (s *suite) createToken(name string, lifetime time.Duration) store.Token {
	s.Helper()
	id, err := s.CreateToken(s.ctx, anna, store.NewToken{Name: name, Role: store.Operator, Hash: strings.Repeat("a", 60) + name, Lifetime: lifetime})
	s.must(err)
	return s.token(id)
}

func (s *suite) token(id int64) store.Token {
	s.Helper()
	tokens, err := s.Tokens(s.ctx)
	s.must(err)
	for _, t := range tokens {
		if t.ID == id {
			return t
		}
	}
	s.Fatalf("token %d is not listed: %+v", id, tokens)
	return store.Token{}
}

func testTokens(s *suite) {
	if tokens, err := s.Tokens(s.ctx); err != nil || len(tokens) != 0 {
		s.Fatalf("Tokens of an empty store returned %v, %v", tokens, err)
	}
	before := s.now()
	first, second := s.createToken("one", 0), s.createToken("two", time.Hour)
	if first.Name != "one" || first.Role != store.Operator || first.Hash != strings.Repeat("a", 60)+"one" || first.State != store.TokenActive ||
		first.CreatedAt.Before(before) || !first.UsedAt.IsZero() || !first.ExpiresAt.IsZero() || !first.RevokedAt.IsZero() {
		s.Errorf("first token: %+v", first)
	}
	if got := second.ExpiresAt.Sub(second.CreatedAt); got != time.Hour || second.State != store.TokenActive || second.ID <= first.ID {
		s.Errorf("second token: %+v", second)
	}
	s.must(s.RevokeToken(s.ctx, anna, "one"))
	if revoked := s.token(first.ID); revoked.State != store.TokenRevoked || revoked.RevokedAt.Before(revoked.CreatedAt) {
		s.Errorf("revoked token: %+v", revoked)
	}
	if still := s.token(second.ID); still.State != store.TokenActive {
		s.Errorf("the other token: %+v", still)
	}
	for _, name := range []string{"one", "three", ""} {
		if err := s.RevokeToken(s.ctx, anna, name); !errors.Is(err, holdfast.ErrNotFound) {
			s.Errorf("RevokeToken(%q) returned %v, want ErrNotFound", name, err)
		}
	}
}

func testTokenNames(s *suite) {
	first := s.createToken("one", 0)
	if _, err := s.CreateToken(s.ctx, anna, store.NewToken{Name: "one", Role: store.Viewer, Hash: "b"}); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("CreateToken with the name of another token returned %v, want ErrConflict", err)
	}
	s.must(s.RevokeToken(s.ctx, anna, "one"))
	id, err := s.CreateToken(s.ctx, anna, store.NewToken{Name: "one", Role: store.Viewer, Hash: "b"})
	s.must(err)
	if again := s.token(id); again.ID == first.ID || again.State != store.TokenActive || s.token(first.ID).State != store.TokenRevoked {
		s.Errorf("the token after a revoked one: %+v", again)
	}
}

func testTokensExpire(s *suite) {
	token := s.createToken("one", time.Microsecond)
	s.eventually("the token has expired", func() bool { return s.token(token.ID).State == store.TokenExpired })
	s.must(s.RevokeToken(s.ctx, anna, "one"))
	if got := s.token(token.ID).State; got != store.TokenRevoked {
		s.Errorf("an expired token is %s after RevokeToken", got)
	}
}

func testUseToken(s *suite) {
	token, other := s.createToken("one", 0), s.createToken("two", 0)
	s.must(s.UseToken(s.ctx, token.ID))
	used := s.token(token.ID).UsedAt
	if used.Before(token.CreatedAt) {
		s.Fatalf("used at %s, created at %s", used, token.CreatedAt)
	}
	s.must(s.UseToken(s.ctx, token.ID))
	if again := s.token(token.ID).UsedAt; !again.Equal(used) {
		s.Errorf("a second use within a minute wrote %s after %s", again, used)
	}
	if unused := s.token(other.ID).UsedAt; !unused.IsZero() {
		s.Errorf("the other token was used at %s", unused)
	}
}

func testTokensAreAudited(s *suite) {
	s.createToken("one", 0)
	s.must(s.RevokeToken(s.ctx, anna, "one"))
	entries, err := s.AuditLog(s.ctx, store.AuditFilter{})
	s.must(err)
	if len(entries) != 2 || entries[0].Action != store.ActionRevoke || entries[1].Action != store.ActionCreate || entries[1].Actor != anna ||
		entries[0].Subject != "token one" || !strings.Contains(string(entries[1].After), `"operator"`) {
		s.Fatalf("audit log: %+v", entries)
	}
	for _, e := range entries {
		if strings.Contains(string(e.Before)+string(e.After), "aaaa") {
			s.Errorf("the audit log has the hash of a token: %+v", e)
		}
	}
}

func testTokensLongActor(s *suite) {
	token := store.NewToken{Name: "ci", Role: store.Viewer, Hash: strings.Repeat("a", 64)}
	other := store.NewToken{Name: "cd", Role: store.Viewer, Hash: strings.Repeat("b", 64)}
	_, err := s.CreateToken(s.ctx, anna, token)
	s.must(err)
	for _, by := range longActors() {
		_, created := s.CreateToken(s.ctx, by, other)
		revoked := s.RevokeToken(s.ctx, by, token.Name)
		if !errors.Is(created, holdfast.ErrInvalid) || !errors.Is(revoked, holdfast.ErrInvalid) {
			s.Errorf("an actor with a name of %d and a reason of %d bytes: %v, %v", len(by.Name), len(by.Reason), created, revoked)
		}
	}
	tokens, err := s.Tokens(s.ctx)
	s.must(err)
	if len(tokens) != 1 || tokens[0].State != store.TokenActive {
		s.Errorf("a refused request has changed the tokens: %+v", tokens)
	}
	longest := store.Actor{Name: strings.Repeat("é", 200), Surface: store.API, Reason: strings.Repeat("é", 1000)}
	_, err = s.CreateToken(s.ctx, longest, other)
	s.must(err)
	s.must(s.RevokeToken(s.ctx, longest, token.Name))
}
