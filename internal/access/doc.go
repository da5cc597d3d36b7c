// Package access decides who sends an HTTP request and which role the caller has. All servers of a process share a
// [Guard], so that none of them decides differently.
//
// [Guard.Authenticate] knows three kinds of callers, and tries them in this order:
//
//  1. a program with a token, whose secret is in the header Authorization;
//  2. a user that a trusted proxy has authenticated;
//  3. any local program, as long as neither a token nor a trusted proxy was ever set up.
//
// It refuses every other request with an [*Error]. [Includes] compares the role of a caller with the role that a route
// needs.
//
// # Sessions
//
// A person signs in once with the secret of a token ([Guard.SignIn]), and the browser then sends a cookie with a
// session ([Guard.AuthenticateBrowser]). A session names the token by its id, and has the time at which it expires and
// a MAC with a key that only the processes of the store know. A session does not contain the secret, so a copied cookie
// does not reveal the secret to others. When the token is revoked, its sessions end within a second. The store has no
// list of sessions: a session costs no write, and every process accepts the sessions of the others. So a single session
// cannot be ended early, and a browser that uses it can renew it ([Guard.Renew]). To end a session, revoke its token.
//
// Only a server for browsers calls AuthenticateBrowser. The API takes no cookie: a browser adds its cookies to requests
// that a page of another site makes, and every route of the API would need a defense against such pages. A page of
// another site does not know the secret of a token, and cannot add it. For the same reason AuthenticateBrowser refuses
// a change if the browser says that it comes from another site.
package access
