// Package api is the HTTP API, under /api/v1. It is thin: it reads and changes the store with the same functions as the
// command line, takes the same filters and has the same JSON keys.
//
// # How a request is served
//
//  1. [API.ServeHTTP] finds the route, catches panics and reports the request to [Options.Observe].
//  2. The guard of the route authenticates the caller with an [access.Guard], compares its role with that of the route,
//     and acquires one of the slots that limit the load on the store.
//  3. The handler of the route parses the parameters and answers. Each error becomes a problem of RFC 9457.
//
// The table in routes.go has every route with the role it needs. New builds the guards of the routes and the OpenAPI
// document from this table.
package api
