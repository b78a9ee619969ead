// The compiled part of Asio (BOOST_ASIO_SEPARATE_COMPILATION): once here instead of in every user.

#include <boost/asio/impl/src.hpp>
