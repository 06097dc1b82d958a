module cloud.google.com/go/storage

go 1.26.8

require google.golang.org/api v0.276.0
